#include "estimator/passes/buckets.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "estimator/passes/module_order.h"

namespace plimsoll {
namespace {

// Ranks' shares of trained weights, one behind the other: of all, or where vectors are a group of
// the optimizer's own, of these and of the others.
class Shares {
 public:
  Shares(const Network& network, int64_t ranks, bool splits_vectors) {
    for (const Weight& weight : network.weights) {
      const size_t group = splits_vectors && weight.vector ? 1 : 0;
      Group& of = groups_[group];
      places_.push_back({group, of.elements, weight.trained ? weight.elements : 0});
      of.elements = Add(of.elements, places_.back().elements);
    }
    for (Group& of : groups_) of.share = std::max<int64_t>(CeilDivide(of.elements, ranks), 1);
  }

  // Elements that a rank steps, of all groups.
  int64_t total() const {
    return Add(groups_[0].share, groups_[1].elements > 0 ? groups_[1].share : 0);
  }
  int64_t share(size_t id) const { return groups_[places_[id].group].share; }
  int64_t Begin(size_t id) const { return places_[id].begin; }
  int64_t End(size_t id) const { return places_[id].begin + places_[id].elements; }
  int64_t Elements(size_t id) const { return places_[id].elements; }
  int64_t FirstOf(size_t id) const { return Begin(id) / share(id); }
  int64_t LastOf(size_t id) const { return (End(id) - 1) / share(id); }

  // Elements of the largest part of a weight that the first share has.
  int64_t LargestPart() const {
    int64_t largest = 0;
    for (size_t id = 0; id < places_.size(); ++id) {
      largest = std::max(largest, std::min(End(id), share(id)) - Begin(id));
    }
    return largest;
  }

  // Elements of the weights that the first share has a part of, and of those of the one with most.
  std::pair<int64_t, int64_t> Partitions() const {
    const auto [first, most] = PartitionsOf(0);
    const auto [first_vectors, most_vectors] = PartitionsOf(1);
    return {Add(first, first_vectors), Add(most, most_vectors)};
  }

 private:
  struct Group {
    int64_t elements = 0;
    int64_t share = 1;
  };
  struct Place {
    size_t group = 0;
    int64_t begin = 0;
    int64_t elements = 0;
  };

  std::pair<int64_t, int64_t> PartitionsOf(size_t group) const {
    int64_t first = 0;
    int64_t most = 0;
    int64_t elements = 0;
    int64_t share = -1;
    for (size_t id = 0; id < places_.size(); ++id) {
      const int64_t own = Elements(id);
      if (own == 0 || places_[id].group != group) continue;
      if (FirstOf(id) != share) elements = 0;
      elements = Add(elements, own);
      if (FirstOf(id) == 0) first = elements;
      most = std::max(most, elements);
      if (LastOf(id) != FirstOf(id)) elements = own;
      share = LastOf(id);
    }
    return {first, most};
  }

  std::array<Group, 2> groups_;
  std::vector<Place> places_;
};

// Of what is sent: flattened, and that in another dtype. Units: bytes.
struct Copies {
  int64_t flat = 0;
  int64_t cast = 0;

  int64_t Sum() const { return Add(flat, cast); }
};

// What is sent before a gradient finds room. Units: bytes.
struct Sent {
  Copies copies{};        // of it, at once
  int64_t widened = 0;    // of the first rank's, a piece to be summed up
  int64_t bucket = 0;     // copied to the bucket, from where it was
  int64_t large = 0;      // of a gradient that is too large for it
  bool of_first = false;  // the first rank has a part of it in its share
};

// Gradients in the order in which they come.
class Bucket {
 public:
  Bucket(const Job& job, const Program& program, const Shares& shares)
      : room_(job.reduce_bucket_element_count),
        gradient_(program.gradient_dtype),
        reduce_(job.precision.reduce),
        sum_(job.precision.accumulation),
        apart_(SumsShare(job)),
        shares_(shares) {}

  bool Empty() const { return elements_ == 0; }
  bool HasRoomFor(size_t id) const {
    return Empty() || Add(elements_, shares_.Elements(id)) <= room_;
  }

  // Neighbours of one share are one piece, but where the share is summed up apart.
  void Put(size_t id) {
    const int64_t first = shares_.FirstOf(id);
    const bool joins = !Empty() && first == last_ && !(apart_ && first == 0);
    pieces_ += shares_.LastOf(id) - first + (joins ? 0 : 1);
    last_ = shares_.LastOf(id);
    own_ = std::max(own_, std::min(shares_.End(id), shares_.share(id)) - shares_.Begin(id));
    elements_ = Add(elements_, shares_.Elements(id));
    id_ = id;
  }

  Sent Send() {
    const bool large = elements_ > room_;
    const int64_t bytes = Bytes(gradient_, elements_);
    const Sent sent{.copies = large ? CopiesOfLarge(id_) : CopiesOf(pieces_, elements_),
                    .widened = reduce_ != sum_ ? Bytes(sum_, own_) : 0,
                    .bucket = large ? 0 : bytes,
                    .large = large ? bytes : 0,
                    .of_first = own_ > 0};
    elements_ = pieces_ = own_ = 0;
    return sent;
  }

 private:
  // One piece is sent from where it is.
  Copies CopiesOf(int64_t pieces, int64_t elements) const {
    return {.flat = pieces > 1 ? Bytes(gradient_, elements) : 0,
            .cast = reduce_ != gradient_ ? Bytes(reduce_, elements) : 0};
  }

  // Of a gradient alone, the most of one call: pieces of shares, until there are enough.
  Copies CopiesOfLarge(size_t id) const {
    Copies most;
    int64_t elements = 0;
    int64_t pieces = 0;
    for (int64_t at = shares_.Begin(id); at < shares_.End(id);) {
      const int64_t share = shares_.share(id);
      const int64_t end = std::min(shares_.End(id), Multiply(at / share + 1, share));
      elements += end - at;
      ++pieces;
      at = end;
      if (elements <= room_ && at < shares_.End(id)) continue;
      const Copies copies = CopiesOf(pieces, elements);
      if (copies.Sum() > most.Sum()) most = copies;
      elements = pieces = 0;
    }
    return most;
  }

  const int64_t room_;
  const DType gradient_;
  const DType reduce_;
  const DType sum_;
  const bool apart_;
  const Shares& shares_;
  int64_t elements_ = 0;
  int64_t pieces_ = 0;
  int64_t own_ = 0;   // of the first rank's pieces the largest; 0: it has none
  int64_t last_ = 0;  // whose share the last one's end is of
  size_t id_ = 0;     // the last one
};

class Sender {
 public:
  Sender(const Job& job, const Program& program)
      : job_(job),
        program_(program),
        network_(ReadNetwork(program.blocks, job.model->layer_count)),
        shares_(network_, job.shard_group_size, job.profile->splits_vectors),
        bucket_(job, program, shares_),
        blocks_(network_.blocks.size()) {
    const auto [first, most] = shares_.Partitions();
    const int64_t share = Bytes(job.precision.accumulation, shares_.total());
    const bool sums = SumsShare(job);
    sent_.first_bytes = sums ? share : Bytes(program.gradient_dtype, first);
    sent_.most_bytes = sums ? share : Bytes(program.gradient_dtype, most);
    sent_.largest_part = shares_.LargestPart();
    sent_.turns.forward.resize(blocks_);
    sent_.turns.backward.resize(blocks_);
    if (job.overlap_communication) sent_.turns.flat_stream = Stream::kReduceScatter;
  }

  // A gradient finds no room once its own backward is over.
  SentGradients InBackward() && {
    ForEachGradient(network_, OrderOf(program_.blocks, network_), [this](size_t id, size_t turn) {
      if (!bucket_.HasRoomFor(id)) SendAt(turn, GradientBytes(id));
      bucket_.Put(id);
    });
    if (!bucket_.Empty()) SendAt(2 * blocks_ - 1, 0);
    return std::move(sent_);
  }

  SentGradients Behind(bool in_order) && {
    sent_.turns.sends_once = true;
    const auto take = [this](size_t id) {
      if (!bucket_.HasRoomFor(id)) SendBehind();
      bucket_.Put(id);
    };
    if (in_order) {
      ForEachGradient(network_, OrderOf(program_.blocks, network_),
                      [&take](size_t id, size_t /*turn*/) { take(id); });
    } else {
      for (size_t id = 0; id < network_.weights.size(); ++id) {
        if (network_.weights[id].trained) take(id);
      }
    }
    if (!bucket_.Empty()) SendBehind();
    return std::move(sent_);
  }

 private:
  int64_t GradientBytes(size_t id) const {
    return Bytes(program_.gradient_dtype, network_.weights[id].elements);
  }

  // What the first rank keeps has room of its own once the first of it is sent, but where the host
  // does; of later micro-batches there is room already where they are summed up.
  int64_t Made(const Sent& sent) {
    if (!sent.of_first || std::exchange(kept_, true) || job_.offload_optimizer) return 0;
    return SumsShare(job_) && job_.micro_batch_count > 1 ? 0 : sent_.first_bytes;
  }

  // Of moments of a turn the one with most is told.
  static void Raise(GatherTurn& turn, int64_t gradients, const Copies& copies) {
    const int64_t most = Add(gradients, copies.Sum());
    if (most <= Add(turn.gradient_bytes, turn.flat_behind_bytes)) return;
    turn.flat_behind_bytes = std::min(most, copies.Sum());
    turn.flat_cast_bytes = std::min(turn.flat_behind_bytes, copies.cast);
    turn.gradient_bytes = most - turn.flat_behind_bytes;
  }

  // `next` waits for its room. ZeRO 1 lets go of no gradient that is not copied to the bucket, or
  // to what the rank keeps; a share that is summed up takes no gradient's place.
  void SendAt(size_t turn, int64_t next) {
    GatherTurn& at = sent_.turns.backward[2 * blocks_ - 1 - turn];
    const Sent sent = bucket_.Send();
    const int64_t made = Made(sent);
    const bool stays = sent.of_first ? SumsShare(job_) : job_.zero_stage == 1;
    const int64_t there = Add(at.kept_bytes, Add(sent.large, next));
    const int64_t most = Add(at.gradient_bytes, at.flat_behind_bytes);
    if (SumsShare(job_)) {
      Raise(at, Add(there, made), {sent.copies.flat, Add(sent.copies.cast, sent.widened)});
    } else {
      Raise(at, there, sent.copies);
      Raise(at, Add(there, made), {});
      if (made > 0) at.flat_first_bytes = std::min(sent.copies.Sum(), made);
    }
    const bool raised = Add(at.gradient_bytes, at.flat_behind_bytes) > most;
    at.keeps_last = !raised && (made > 0 ? most > 0 : at.keeps_last);
    at.kept_flat_bytes = Add(at.kept_flat_bytes, made);
    at.kept_bytes = Add(at.kept_bytes, Add(made, stays ? sent.large : 0));
  }

  // What is copied to the bucket goes from where it was.
  void SendBehind() {
    const Sent sent = bucket_.Send();
    gone_bytes_ = Add(gone_bytes_, sent.bucket);
    const int64_t copies = std::min(sent.copies.Sum(), gone_bytes_);
    if (copies > Add(sent_.flat_bytes, sent_.cast_bytes)) {
      sent_.cast_bytes = std::min(sent.copies.cast, copies);
      sent_.flat_bytes = copies - sent_.cast_bytes;
    }
    const int64_t before = kept_ ? sent_.first_bytes : 0;
    GatherTurn& last = sent_.turns.backward.front();
    Raise(last, before - gone_bytes_, sent.copies);
    Raise(last, Add(before, Made(sent)) - gone_bytes_, {});
    if (sent.of_first) gone_bytes_ = Add(gone_bytes_, sent.large);
  }

  const Job& job_;
  const Program& program_;
  const Network network_;
  const Shares shares_;
  Bucket bucket_;
  const size_t blocks_;
  bool kept_ = false;       // what the first rank keeps has room
  int64_t gone_bytes_ = 0;  // from where gradients were
  SentGradients sent_;
};

}  // namespace

bool SumsShare(const Job& job) { return job.zero_stage == 2 && job.precision.SumsWide(); }

SentGradients SendGradients(const Job& job, const Program& program, Sending sending) {
  Sender sender(job, program);
  if (sending == Sending::kInBackward) return std::move(sender).InBackward();
  return std::move(sender).Behind(sending == Sending::kBehindInOrder);
}

}  // namespace plimsoll
