#include "estimator/passes/buckets.h"

#include <algorithm>
#include <vector>

#include "estimator/passes/module_order.h"

namespace plimsoll {
namespace {

// Gradients of more elements are reduced in several calls.
// Source: deepspeed/runtime/zero/stage_1_and_2.py, allreduce_and_scatter, numel_per_bucket.
constexpr int64_t kCallElements = 500000000;

// Ranks' shares of trained weights, one behind the other.
class Shares {
 public:
  Shares(const Network& network, int64_t ranks) {
    int64_t end = 0;
    for (const Weight& weight : network.weights) {
      begins_.push_back(end);
      end = Add(end, weight.trained ? weight.elements : 0);
    }
    begins_.push_back(end);
    share_ = std::max<int64_t>(CeilDivide(end, ranks), 1);
  }

  int64_t FirstOf(size_t id) const { return begins_[id] / share_; }
  int64_t LastOf(size_t id) const { return (begins_[id + 1] - 1) / share_; }

  // Of a gradient alone, the most that one call flattens: pieces of shares, until there are enough.
  int64_t FlatOf(size_t id) const {
    int64_t most = 0;
    int64_t elements = 0;
    int64_t pieces = 0;
    for (int64_t at = begins_[id]; at < begins_[id + 1];) {
      const int64_t end = std::min(begins_[id + 1], Multiply(at / share_ + 1, share_));
      elements += end - at;
      ++pieces;
      at = end;
      if (elements <= kCallElements && at < begins_[id + 1]) continue;
      if (pieces > 1) most = std::max(most, elements);
      elements = pieces = 0;
    }
    return most;
  }

  // Elements of the weights that the first share has a part of, and of those of the one with most.
  void SetPartitions(const Network& network, SentGradients& sent) const {
    int64_t elements = 0;
    int64_t share = -1;
    for (size_t id = 0; id < network.weights.size(); ++id) {
      const int64_t own = begins_[id + 1] - begins_[id];
      if (own == 0) continue;
      if (FirstOf(id) != share) elements = 0;
      elements = Add(elements, own);
      if (FirstOf(id) == 0) sent.first_elements = elements;
      sent.most_elements = std::max(sent.most_elements, elements);
      if (LastOf(id) != FirstOf(id)) elements = own;
      share = LastOf(id);
    }
  }

 private:
  std::vector<int64_t> begins_;
  int64_t share_ = 1;
};

// Gradients in the order in which they come.
class Bucket {
 public:
  Bucket(const Job& job, const Shares& shares, const Network& network)
      : room_(job.reduce_bucket_element_count), shares_(shares), network_(network) {}

  // What is sent before a gradient finds room: elements that are flattened, and those of one that
  // is too large for the bucket, beside it.
  struct Sent {
    int64_t flat = 0;
    int64_t beside = 0;
    int64_t copied = 0;  // to the bucket, from where they were
    int64_t own = 0;     // of `beside`, what goes to the first rank's part then
  };

  bool HasRoomFor(size_t id) const {
    return elements_ == 0 || Add(elements_, network_.weights[id].elements) <= room_;
  }
  bool Empty() const { return elements_ == 0; }

  void Put(size_t id) {
    const int64_t elements = network_.weights[id].elements;
    if (elements_ == 0) first_ = shares_.FirstOf(id);
    several_ = several_ || shares_.FirstOf(id) != first_ || shares_.LastOf(id) != first_;
    elements_ = Add(elements_, elements);
    if (elements <= room_) return;
    sent_.beside = elements;
    sent_.flat = shares_.FlatOf(id);
    sent_.own = shares_.FirstOf(id) == 0 ? elements : 0;
  }

  Sent Send() {
    Sent sent = std::exchange(sent_, {});
    if (sent.beside == 0) {
      sent.copied = elements_;
      sent.flat = several_ ? elements_ : 0;
    }
    elements_ = 0;
    several_ = false;
    return sent;
  }

 private:
  const int64_t room_;
  const Shares& shares_;
  const Network& network_;
  Sent sent_;
  int64_t elements_ = 0;
  int64_t first_ = 0;     // whose share the first is of
  bool several_ = false;  // others have a part
};

class Sender {
 public:
  Sender(const Job& job, const Program& program)
      : job_(job),
        program_(program),
        network_(ReadNetwork(program, job.model->layer_count)),
        shares_(network_, job.shard_group_size),
        bucket_(job, shares_, network_),
        turns_(network_.blocks.size()) {
    shares_.SetPartitions(network_, sent_);
    sent_.flats.forward.resize(turns_);
    sent_.flats.backward.resize(turns_);
    if (job.overlap_communication) sent_.flats.flat_stream = Stream::kReduceScatter;
  }

  // A gradient finds no room once its own backward is over. Where the head reads the table too, its
  // gradient is counted until all of backward is.
  SentGradients InBackward() && {
    const std::vector<Visit> order = OrderOf(program_, network_);
    const std::vector<size_t> last = LastVisits(network_, order);
    for (size_t step = 0; step < order.size(); ++step) {
      if (!order[step].backward) continue;
      for (const int32_t number : order[step].module) {
        const auto id = static_cast<size_t>(number);
        if (!network_.weights[id].trained || last[id] != step) continue;
        if (!bucket_.HasRoomFor(id)) Flatten(order[step].turn, network_.weights[id].elements);
        bucket_.Put(id);
      }
    }
    if (!bucket_.Empty()) Flatten(2 * turns_ - 1, 0);
    return std::move(sent_);
  }

  // What is copied to the bucket goes from where it was, and the rank's part has room of its own
  // once a bucket is sent.
  SentGradients Behind() && {
    int64_t most = 0;
    int64_t copied = 0;
    int64_t partition = 0;
    const auto send = [&] {
      const Bucket::Sent sent = bucket_.Send();
      copied = Add(copied, Gradient(sent.copied));
      most = std::max(most, Add(Reduced(sent.flat), partition) - copied);
      partition = Gradient(sent_.first_elements);
      copied = Add(copied, Gradient(sent.own));
    };
    for (size_t id = 0; id < network_.weights.size(); ++id) {
      if (!network_.weights[id].trained) continue;
      if (!bucket_.HasRoomFor(id)) send();
      bucket_.Put(id);
    }
    if (!bucket_.Empty()) send();
    sent_.flats.backward.front().flat_behind_bytes = most;
    return std::move(sent_);
  }

 private:
  int64_t Gradient(int64_t elements) const { return Bytes(program_.gradient_dtype, elements); }
  int64_t Reduced(int64_t elements) const { return Bytes(job_.precision.reduce, elements); }

  void Flatten(size_t turn, int64_t next) {
    GatherTurn& at = sent_.flats.backward[2 * turns_ - 1 - turn];
    const Bucket::Sent sent = bucket_.Send();
    const bool table = turn + 1 == 2 * turns_;
    const int64_t known =
        table && job_.model->tied_embeddings ? network_.weights.front().elements : 0;
    const int64_t gradients = Add(Gradient(sent.beside), Gradient(next)) - Gradient(known);
    at.flat_behind_bytes = std::max(at.flat_behind_bytes, Add(Reduced(sent.flat), gradients));
  }

  const Job& job_;
  const Program& program_;
  const Network network_;
  const Shares shares_;
  Bucket bucket_;
  const size_t turns_;  // forward, and as many backward
  SentGradients sent_;
};

}  // namespace

SentGradients SendGradients(const Job& job, const Program& program, bool behind) {
  Sender sender(job, program);
  return behind ? std::move(sender).Behind() : std::move(sender).InBackward();
}

}  // namespace plimsoll
