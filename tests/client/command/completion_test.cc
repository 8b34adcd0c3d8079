// The completion scripts in the real shells: each offers the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "tests/client/process.h"

namespace plimsoll {
namespace {

using Words = std::vector<std::string>;

// A folder of the test's own is all that the shells know of their user.
class CompletionTest : public testing::TestWithParam<const char*> {
 protected:
  // What the shell offers after `line`, whose last word is being typed; of a file its
  // name, of a flag with a value what comes after '='.
  Words Offered(const std::string& line) {
    const std::string shell = GetParam();
    const Words command = shell == "zsh"    ? OfZsh(line)
                          : shell == "fish" ? OfFish(line)
                                            : OfBash(line);
    const ProcessResult result = RunProcess(
        command, "", {"HOME=" + home_.folder(), "XDG_CONFIG_HOME=" + home_.folder(), "BASH_ENV="});
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(result.err, "");
    Words offered;
    std::istringstream lines(result.out);
    for (std::string word; std::getline(lines, word);) {
      word = word.substr(0, word.find('\t'));
      const size_t before = word.find_last_of("/=");
      if (before != std::string::npos) word = word.substr(before + 1);
      if (!word.empty()) offered.push_back(word);
    }
    std::sort(offered.begin(), offered.end());
    return offered;
  }

  const TemporaryFile home_{"{}", "job.yaml"};

 private:
  static Words OfBash(const std::string& line) {
    std::string words, word;
    int count = -1;
    for (const char c : line + " ") {
      if (c != ' ') {
        word += c;
        continue;
      }
      words += " '" + word + "'";
      word.clear();
      ++count;
    }
    return {"bash", "--norc", "-c",
            std::string("source <('") + PLIMSOLL + "' completion bash) || exit 9; COMP_WORDS=(" +
                words + "); COMP_CWORD=" + std::to_string(count) +
                "; _plimsoll; printf '%s\\n' \"${COMPREPLY[@]}\""};
  }

  static Words OfFish(const std::string& line) {
    return {"fish", "--no-config", "-c",
            std::string("source ('") + PLIMSOLL + "' completion fish | psub); complete -C '" +
                line + "'"};
  }

  // Types the line and a tab into a zsh on a terminal of its own, whose compadd keeps
  // what it is given.
  Words OfZsh(const std::string& line) {
    constexpr char kScript[] = R"zsh(
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PS1= PROMPT2=
autoload -Uz compinit && compinit -u -d $3/.dump
source <(${(q)2} completion zsh)
compadd() {
  if [[ -z \${argv[(r)-[OAD]*]} ]]; then
    local -a offered
    builtin compadd -O offered \"\$@\"
    print -rl -- \$offered >> $3/.offered
  fi
  builtin compadd \"\$@\"
}
offer() { _main_complete; compstate[insert]= compstate[list]=; print -r -- all-is-offered }
zle -C offer complete-word offer
bindkey '^I' offer
print -r -- all-is-ready"
zpty -r shell said '*all-is-ready*all-is-ready*'
zpty -w -n shell "$1"$'\t'
zpty -r shell said '*all-is-offered*'
zpty -d shell
[[ ! -e $3/.offered ]] || { cat $3/.offered; rm $3/.offered }
)zsh";
    return {"zsh", "-f", "-c", kScript, "zsh", line, PLIMSOLL, home_.folder()};
  }
};

struct Case {
  const char* line;  // after the program
  Words offered;
};

TEST_P(CompletionTest, OffersCommandsFlagsAndValues) {
  const Case cases[] = {
      // Commands.
      {"e", {"estimate"}},
      {"rec", {"recommend"}},
      {"mo", {"models"}},
      {"se", {"serve"}},
      {"di", {"diff"}},
      {"--v", {"--version"}},
      // Flags of a command.
      {"estimate --tensor", {"--tensor-parallel-size"}},
      {"diff --tensor", {"--tensor-parallel-size"}},
      {"recommend --gpu-c", {"--gpu-count"}},
      {"gpus --tensor", {}},
      {"measure --ra", {"--rank"}},
      {"serve --drain-d", {"--drain-delay-ms"}},
      {"estimate job.yaml --expl", {"--explain"}},
      // Vocabularies.
      {"estimate -o j", {"json", "jsonl"}},
      {"gpus --output y", {"yaml"}},
      {"estimate --zero-stage ", {"0", "1", "2", "3"}},
      {"recommend --objective f", {"fastest", "fewest-gpus"}},
      {"completion b", {"bash"}},
      {"completion z", {"zsh"}},
      {"estimate --detail ", {"replay", "summary"}},
      {"report --outcome out", {"out-of-memory"}},
      // What has no vocabulary.
      {"estimate --gpu-count ", {}},
      // The catalog's names.
      {"estimate --gpu h100-80gb-s", {"h100-80gb-sxm"}},
      {"recommend --gpu h100-80gb-s", {"h100-80gb-sxm"}},
      {"measure --gpu h100-80gb-s", {"h100-80gb-sxm"}},
      {"estimate --model llama-3.1-8", {"llama-3.1-8b"}},
  };
  for (const Case& row : cases) {
    EXPECT_EQ(Offered(std::string(PLIMSOLL) + " " + row.line), row.offered) << row.line;
  }
}

TEST_P(CompletionTest, OffersFiles) {
  const TemporaryFile file("{}", "job.yaml");
  for (const char* const before :
       {"estimate", "estimate --jobs", "recommend --plot", "estimate --timeline", "diff other.yaml",
        "submit", "admit --policy", "estimate --model"}) {
    EXPECT_EQ(Offered(std::string(PLIMSOLL) + " " + before + " " + file.folder() + "/j"),
              Words{"job.yaml"})
        << before;
  }
}

INSTANTIATE_TEST_SUITE_P(Shells, CompletionTest, testing::Values("bash", "zsh", "fish"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace plimsoll
