// What `--help` says beside the flags: examples and exit codes.
#ifndef PLIMSOLL_CLIENT_COMMAND_HELP_H_
#define PLIMSOLL_CLIENT_COMMAND_HELP_H_

namespace plimsoll {

inline constexpr char kAbout[] =
    "Says how much memory each GPU of a training job will hold, and how to make it fit.";

inline constexpr char kFooter[] = R"(Examples:
  plimsoll estimate --model llama-3.1-8b --gpu h100-80gb-sxm --gpu-count 8 --zero-stage 3 \
                    --sequence-length 8192
  plimsoll recommend job.yaml
  plimsoll diff job.yaml --zero-stage 3
  plimsoll admit job.yaml --policy policy.yaml
  plimsoll submit job.yaml -- sbatch train.sh
  plimsoll measure --gpu h100-80gb-sxm -- python train.py
  plimsoll models
  plimsoll estimate --help

Exit status:
  0  the job fits, or what was asked is done; recommend: something fits
  1  something failed here
  2  bad input; with --jobs: at least one line was bad
  3  the job does not fit; recommend: nothing does; admit: reject
  4  the service is out of reach, overloaded or late
  5  at risk: the upper bound does not fit, less than that may
  6  admit: resize)";

inline constexpr char kEstimateFooter[] = R"(A job file has the API's own names:
  model: {name: llama-3.1-8b}        # or hf_config: path/to/config.json
  training: {sequence_length: 8192, micro_batch_size: 1}
  parallelism: {zero_stage: 3}
  cluster: {gpu: h100-80gb-sxm, gpu_count: 8}
or those of flags and of others (Megatron-LM, DeepSpeed, Hugging Face), in a file and as flags:
  {model: meta-llama/Llama-3.1-8B, seq_len: 8k, mbs: 1, zero: 3, gpu: h100-80gb-sxm, gpus: 8}
What was read is listed under Assumed. A job script is read by its #PLIMSOLL lines,
with the GPUs that its #SBATCH lines ask for.

Examples:
  plimsoll estimate job.yaml
  plimsoll estimate job.yaml --zero-stage 2 --set training.recompute.mode=full --explain
  plimsoll estimate job.yaml --timeline memory.html
  plimsoll estimate --model ./config.json --gpu a100-80gb-sxm --gpu-count 8 --sequence-length 4096
  plimsoll estimate --model Qwen/Qwen3-8B --seq-len 8k --nodes 2 --gpu h100-80gb-sxm --zero 3
  plimsoll estimate train.sh          # the #PLIMSOLL lines of a job script
  cat job.json | plimsoll estimate - -o json | jq .verdict
  plimsoll estimate --jobs requests.jsonl -o jsonl > answers.jsonl
  plimsoll estimate job.yaml --server planner.example:50051 --timeout 500ms

Exit status: 0 fits, 5 at risk, 3 does not fit, 2 bad input, 4 service out of reach, 1 failure.
With --jobs: 0 every line was answered, 2 a line was bad.)";

inline constexpr char kRecommendFooter[] =
    R"(Searches every legal sharding of the job. Batch, sequence, precision, optimizer and model are kept:
the training run stays the same run. Where nothing says how many GPUs, 1 to 64 are considered, and
the fewest that fit are the best.

Examples:
  plimsoll recommend job.yaml
  plimsoll recommend job.yaml -o yaml > fixed.yaml && plimsoll estimate fixed.yaml
  plimsoll recommend job.yaml --gpus 8..512 --gpu h100-80gb-sxm,h200-141gb-sxm --plot choices.svg
  plimsoll recommend job.yaml --gpus 8..64 --objective fewest-gpus
  plimsoll recommend job.yaml --objective cheapest --price h100-80gb-sxm=2.5,a100-80gb-sxm=1.4 \
                     --gpu h100-80gb-sxm,a100-80gb-sxm
  plimsoll recommend job.yaml --freeze parallelism.tensor_parallel_size,training.recompute
  plimsoll recommend job.yaml --allow parallelism.zero_stage,training.recompute --objective smallest-change
  plimsoll recommend job.yaml --allow '*,training.adapter'    # and, where nothing fits, LoRA or QLoRA
  plimsoll recommend --model llama-3.1-8b --gpu h100-80gb-sxm --sequence-length 8192
  plimsoll recommend --model llama-3.1-8b --gpu h100-80gb-sxm --gpus 1..8 --sequence-length 8192
  plimsoll recommend --jobs requests.jsonl -o jsonl > answers.jsonl

Exit status: 0 something fits, 3 nothing fits, 2 bad input, 4 service out of reach, 1 failure.
With --jobs: 0 every line was answered, 2 a line was bad.)";

inline constexpr char kDiffFooter[] =
    R"(What differs in two jobs, in the memory of their fullest GPUs, and in the time of a step. Flags
apply to both files; of one file alone, they make the other side.

Examples:
  plimsoll diff job.yaml fixed.yaml
  plimsoll diff job.yaml --zero-stage 3 --recompute full
  plimsoll recommend job.yaml -o yaml | plimsoll diff job.yaml -
  plimsoll diff small.yaml large.yaml --gpu h200-141gb-sxm -o json | jq .fields

Exit status: 0 both were answered, whether they fit or not, 2 bad input, 4 service out of reach,
1 failure.)";

inline constexpr char kAdmitFooter[] =
    R"(What a scheduler asks before it queues a job. A policy says what is done, by partition:
  rules: {mode: warn}                # off, shadow, warn or enforce
  partitions:
    h100: {mode: enforce, gpu: h100-80gb-sxm, resize: allowed,
           allowed_changes: [parallelism.zero_stage, training.recompute]}

Without an answer in --timeout the policy decides (admit).

Examples:
  plimsoll admit job.yaml --policy /etc/plimsoll/policy.yaml --partition h100
  plimsoll admit job.yaml --policy policy.yaml --resizable -o yaml > resized.yaml
  plimsoll admit --scheduler-request - --inline --policy policy.yaml -o json < request.json
  plimsoll admit --scheduler-request request.json --print-words

Exit status: 0 admit (with a warning or without), 3 reject, 6 resize, 2 bad input, 1 failure.)";

inline constexpr char kSubmitFooter[] =
    R"(Estimates the job, and submits it where it fits, with the job in PLIMSOLL_JOB and its sizes in
PLIMSOLL_ZERO_STAGE, PLIMSOLL_TENSOR_PARALLEL_SIZE and the like. Where it does not fit, the
smallest change that does is shown, and made where you agree: for jobs that read these variables.
The GPUs that the command asks for are never changed. With salloc and srun the job travels in
--comment: one of your own takes its place.

Examples:
  plimsoll submit job.yaml -- sbatch --gres=gpu:h100:8 train.sh
  plimsoll submit train.sh -- sbatch train.sh     # the job is in its #PLIMSOLL lines
  plimsoll submit job.yaml --yes --allow parallelism.zero_stage,training.recompute -- sbatch train.sh
  plimsoll submit job.yaml --micro-batch-size 2 -- srun --gres=gpu:8 python train.py

Exit status: that of the command; where it is not run: 3 does not fit, 2 bad input, 4 service out
of reach, 1 failure.)";

inline constexpr char kReportFooter[] =
    R"(Counts a job that has ended in the service's metrics, and keeps it as a row to calibrate from.

Examples:
  plimsoll report --job-id 4711 --prediction prediction.json --prometheus http://prometheus:9090 \
                  --server unix:/run/plimsoll/plimsoll.sock --rows /var/lib/plimsoll/rows.csv
  plimsoll report --job-id 4711 --prediction - --outcome out-of-memory \
                  --server unix:/run/plimsoll/plimsoll.sock < comment.txt
  plimsoll report --prediction prediction.json --prometheus http://prometheus:9090 \
                  --pod training/llama-0 --start 2026-11-21T22:10:00Z \
                  --server unix:/run/plimsoll/plimsoll.sock
  nvidia-smi --query-gpu=memory.used --format=csv,noheader | plimsoll report --job-id 4711 \
                  --actual - --source nvidia-smi --rows rows.csv
  plimsoll report --job-id 4711 --peak 61.5GiB --gauge reserved --source torch --rows rows.csv
  tests/accuracy/calibrate.py --plimsoll plimsoll --data FOLDER-OF-ROWS --id site --write site.yaml

Exit status: 0 reported, 2 bad input or no job for a row, 4 service or Prometheus out of reach,
1 failure, also where Prometheus has no data of the job.)";

inline constexpr char kMeasureFooter[] =
    R"(Runs the command as it is, on this machine, which needs no GPU: with the PyTorch that it has, on
CUDA libraries that compute nothing. PyTorch's own allocator says what each step took, and which
line made what is alive at the peak; memory runs out where the GPU's would. One rank of --gpus is
run; torchrun is run with one process. What the command prints goes to standard error.

Examples:
  plimsoll measure --gpu h100-80gb-sxm -- python train.py
  plimsoll measure --gpu h100-80gb-sxm --gpus 16 --rank 3 -- torchrun --nproc-per-node 8 --nnodes 2 train.py
  plimsoll measure --gpu a100-40gb-sxm -o json -- python train.py | jq .lastStep.allocatedBytes

Exit status: 0 fits, 3 does not fit, 2 bad input or a PyTorch that the phantom does not know,
1 failure, also of the command.)";

inline constexpr char kModelsFooter[] = R"(Examples:
  plimsoll models
  plimsoll models -o jsonl | jq -r .name)";

inline constexpr char kGpusFooter[] = R"(Examples:
  plimsoll gpus
  plimsoll gpus -o json | jq '.gpus[] | {gpu, aliases}')";

inline constexpr char kServeFooter[] = R"(The same server, with the same flags, as plimsoll-server.

Examples:
  plimsoll serve
  plimsoll serve --listen 0.0.0.0:50051 --listen unix:/run/plimsoll/plimsoll.sock)";

inline constexpr char kCompletionFooter[] = R"(Examples:
  source <(plimsoll completion bash)
  plimsoll completion bash > ~/.local/share/bash-completion/completions/plimsoll
  plimsoll completion zsh > ~/.zsh/_plimsoll          # a folder of fpath, before compinit
  plimsoll completion fish > ~/.config/fish/completions/plimsoll.fish)";

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_COMMAND_HELP_H_
