#include "server/face/grpc_connections.h"

#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/string_view.h"
#include "server/load/crowding.h"

namespace plimsoll {
namespace {

constexpr uint32_t kGone = EPOLLRDHUP | EPOLLHUP | EPOLLERR;
// How long the bytes of a connection go unmeasured, at least, and for each that is active:
// a look at one takes some 2 us.
constexpr std::chrono::milliseconds kLeastInterval{10};
constexpr std::chrono::microseconds kIntervalOfEach{100};
// Where a connection could not be taken: until the next try.
constexpr std::chrono::milliseconds kRetryInterval{100};
constexpr int kMaxAccepted = 64;  // before others are looked at
constexpr int kHandingThreads = 4;
constexpr int64_t kSuspectBytes = 128 << 10;
constexpr int64_t kCallsOfSample = 16;  // one of them is asked how long it waited
constexpr int64_t kMaxEarlyInRow = 16;
constexpr std::chrono::seconds kShedsFor{5};
constexpr std::chrono::minutes kSpared{1};

// What epoll says of: a wake-up, a listener (its index and one more), or a connection.
constexpr uint64_t kWake = 0;
constexpr uint64_t kFirstConnection = 1 << 10;

bool Control(int epoll, int operation, int socket, uint64_t id, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  return epoll_ctl(epoll, operation, socket, &event) == 0;
}

// One event, and silence until it is armed again.
constexpr uint32_t kOnce = EPOLLIN | EPOLLRDHUP | EPOLLONESHOT;

// Nothing over a unix socket.
std::optional<tcp_info> InfoOf(const UniqueFd& socket) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (getsockopt(socket.get(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return std::nullopt;
  return info;
}

}  // namespace

GrpcConnections::GrpcConnections(const Limits& limits, CallerConnections* callers, Metrics* metrics,
                                 const Log* log)
    : limits_(limits),
      callers_(callers),
      metrics_(metrics),
      log_(log),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      last_id_(kFirstConnection) {
  Control(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), kWake, EPOLLIN | EPOLLET);
}

GrpcConnections::~GrpcConnections() {
  {
    const std::lock_guard lock(handed_mutex_);
    closing_ = true;
  }
  handed_changed_.notify_all();
  Refuse();
  for (std::thread& thread : threads_) thread.join();
  CloseListeners();
}

std::string GrpcConnections::Listen(Address* address) {
  std::string why;
  for (UniqueFd& listener : plimsoll::Listen(address, &why)) {
    listeners_.push_back({std::move(listener), address->is_unix()});
    Control(epoll_.get(), EPOLL_CTL_ADD, listeners_.back().socket.get(), listeners_.size(), kOnce);
  }
  if (why.empty() && address->is_unix()) paths_.push_back(address->path);
  return why;
}

void GrpcConnections::Start(Acceptors acceptors) {
  acceptors_ = std::move(acceptors);
  if (listeners_.empty()) return;
  threads_.emplace_back([this] { Watch(); });
  for (int i = 0; i < kHandingThreads; ++i) threads_.emplace_back([this] { HandOver(); });
}

std::optional<std::chrono::milliseconds> GrpcConnections::Called(const std::string& peer,
                                                                 Method method) {
  const std::shared_lock lock(mutex_);
  const auto found = by_peer_.find(peer);
  if (found == by_peer_.end()) return std::nullopt;
  if (method == Method::kAdmit) found->second->spared_until = Clock::now() + kSpared;
  const int64_t calls = found->second->calls.fetch_add(1, std::memory_order_relaxed);
  if (calls % kCallsOfSample != 0) return std::nullopt;
  const std::optional<tcp_info> info = InfoOf(found->second->socket);
  if (!info.has_value()) return std::nullopt;
  return std::chrono::milliseconds(info->tcpi_last_data_recv);
}

void GrpcConnections::CalledBy(const std::string& peer, const ConnectionOwner& owner) {
  {
    const std::shared_lock lock(mutex_);
    const auto found = by_peer_.find(peer);
    if (found == by_peer_.end() || found->second->owner == owner) return;
  }
  {
    const std::unique_lock lock(mutex_);
    const auto found = by_peer_.find(peer);
    if (found != by_peer_.end()) found->second->owner = owner;
  }
  OwnersChanged();
}

void GrpcConnections::OwnersChanged() {
  if (!owners_changed_.exchange(true)) eventfd_write(wake_.get(), 1);
}

void GrpcConnections::Answered(const std::string& peer) {
  const std::shared_lock lock(mutex_);
  const auto found = by_peer_.find(peer);
  if (found != by_peer_.end()) found->second->answered.fetch_add(1, std::memory_order_relaxed);
}

// What was sent before its sender could know is not early.
void GrpcConnections::Shed(const std::string& peer, std::chrono::milliseconds retry_after) {
  constexpr std::chrono::milliseconds kOnTheWay{50};
  const std::shared_lock lock(mutex_);
  const auto found = by_peer_.find(peer);
  if (found == by_peer_.end()) return;
  Connection& connection = *found->second;
  const Clock::time_point now = Clock::now();
  sheds_until_ = now + kShedsFor;
  if (now >= connection.shed_until.load()) {
    connection.shed_since = now;
    connection.shed_until = now + retry_after;
  } else if (now - connection.shed_since.load() > kOnTheWay) {
    connection.early.fetch_add(1, std::memory_order_relaxed);
  }
}

void GrpcConnections::Refuse() {
  refusing_ = true;
  eventfd_write(wake_.get(), 1);
}

bool GrpcConnections::WaitUntilEmpty(Clock::time_point deadline) {
  std::unique_lock lock(count_mutex_);
  return count_changed_.wait_until(lock, deadline, [this] { return count_ == 0; });
}

void GrpcConnections::Watch() {
  std::array<epoll_event, 256> events;
  Clock::time_point looked = Clock::now();
  while (!closing_) {
    const int count =
        epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), TimeoutMs());
    for (int i = 0; i < count; ++i) Heed(events[i].data.u64, events[i].events);
    if (refusing_) CloseListeners();
    if (Clock::now() - looked < std::chrono::milliseconds(TimeoutMs())) continue;
    looked = Clock::now();
    MeasureActive();
    CloseFlooding();
    CloseInsistent();
    if (owners_changed_.exchange(false)) CountOwners();
    for (size_t i = 0; !accepting_ && i < listeners_.size(); ++i)
      Arm(listeners_[i].socket.get(), i + 1);
  }
}

// -1: until something happens.
int GrpcConnections::TimeoutMs() const {
  using std::chrono::milliseconds;
  const auto of_active = std::chrono::duration_cast<milliseconds>(kIntervalOfEach * active_.size());
  const milliseconds interval = std::max(kLeastInterval, of_active);
  if (!accepting_) return static_cast<int>(std::max(interval, kRetryInterval).count());
  return active_.empty() ? -1 : static_cast<int>(interval.count());
}

void GrpcConnections::Heed(uint64_t id, uint32_t events) {
  if (id == kWake) return;
  if (id < kFirstConnection) return AcceptFrom(id - 1);
  const auto found = places_.find(id);
  if (found == places_.end()) return;  // closed since
  if ((events & kGone) != 0) return Drop(found->second);
  Heard(found->second);
  active_.insert(*found);
}

void GrpcConnections::Arm(int socket, uint64_t id) {
  Control(epoll_.get(), EPOLL_CTL_MOD, socket, id, kOnce);
}

// Connections that have come are taken: their callers wait for an answer already.
void GrpcConnections::CloseListeners() {
  for (const Listener& listener : listeners_) {
    while (!closing_ && Take(listener)) {
    }
  }
  listeners_.clear();
  for (const std::string& path : paths_) RemoveSocket(path);
  paths_.clear();
}

void GrpcConnections::AcceptFrom(size_t listener) {
  if (listener >= listeners_.size()) return;  // closed since
  accepting_ = true;
  for (int i = 0; i < kMaxAccepted && Take(listeners_[listener]); ++i) {
  }
  if (accepting_) Arm(listeners_[listener].socket.get(), listener + 1);
}

// Returns whether there may be another.
bool GrpcConnections::Take(const Listener& listener) {
  UniqueFd socket(accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket.valid()) {
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      CannotAccept(errno);
      return false;
    }
    return errno == EINTR || errno == ECONNABORTED;
  }
  const Address peer = PeerAddress(socket.get());
  if (IsBanned(peer.host)) return true;
  if (connections_.size() >= limits_.max_count) CloseMostSilent();
  Add(listener, std::move(socket), peer);
  return true;
}

bool GrpcConnections::IsBanned(const std::string& host) {
  const Clock::time_point now = Clock::now();
  for (auto* const banned : {&flooding_, &insistent_}) {
    std::erase_if(*banned, [now](const auto& one) { return one.second <= now; });
  }
  return flooding_.contains(host) || insistent_.contains(host);
}

// Whether admissions come from it, as they do from a proxy for all.
bool GrpcConnections::IsSpared(const std::string& host) const {
  const Clock::time_point now = Clock::now();
  return std::any_of(connections_.begin(), connections_.end(), [&](const Connection& one) {
    return one.host == host && now < one.spared_until.load();
  });
}

void GrpcConnections::Add(const Listener& listener, UniqueFd socket, const Address& peer) {
  UniqueFd duplicate(fcntl(socket.get(), F_DUPFD_CLOEXEC, 0));
  if (!duplicate.valid()) return CannotAccept(errno);
  Connection& connection = connections_.emplace_back();
  const auto place = std::prev(connections_.end());
  connection.id = ++last_id_;
  connection.socket = std::move(duplicate);
  connection.peer = ToGrpcName(peer);
  connection.host = peer.host;
  places_.emplace(connection.id, place);
  if (!connection.peer.empty()) {
    const std::unique_lock lock(mutex_);
    by_peer_[connection.peer] = &connection;
  }
  SetCount();
  Control(epoll_.get(), EPOLL_CTL_ADD, connection.socket.get(), connection.id, kOnce);
  Acceptor* const to = listener.is_unix ? acceptors_.unix_socket.get() : acceptors_.tcp.get();
  {
    const std::lock_guard lock(handed_mutex_);
    handed_.push_back({std::move(socket), listener.socket.get(), to});
  }
  handed_changed_.notify_one();
}

void GrpcConnections::HandOver() {
  std::unique_lock lock(handed_mutex_);
  for (;;) {
    handed_changed_.wait(lock, [this] { return closing_ || !handed_.empty(); });
    if (handed_.empty()) return;
    Handed next = std::move(handed_.front());
    handed_.pop_front();
    lock.unlock();
    Acceptor::NewConnectionParameters parameters;
    parameters.listener_fd = next.listener;
    parameters.fd = next.socket.Release();
    next.to->HandleNewConnection(&parameters);
    lock.lock();
  }
}

void GrpcConnections::CannotAccept(int error) {
  if (accepting_) {
    log_->Write(LogLevel::kError, "cannot-accept", {{"message", std::strerror(error)}});
  }
  accepting_ = false;
  metrics_->CannotAccept();
  CloseMostSilent();
}

void GrpcConnections::MeasureActive() {
  for (auto next = active_.begin(); next != active_.end();) {
    const auto [id, place] = *next++;
    const int64_t held = place->held();
    const bool active = Measure(&*place);
    held_ += place->held() - held;
    if (active) {
      Heard(place);
      continue;
    }
    active_.erase(id);
    Arm(place->socket.get(), id);
  }
}

// Returns whether something came since the last look.
bool GrpcConnections::Measure(Connection* connection) {
  if (connection->peer.empty()) return false;
  const std::optional<tcp_info> info = InfoOf(connection->socket);
  if (!info.has_value()) return false;
  const auto received = static_cast<int64_t>(info->tcpi_bytes_received);
  const bool active = received > connection->received;
  connection->received = received;
  const auto sent = static_cast<int64_t>(info->tcpi_bytes_sent);
  if (sent != connection->sent) connection->before_sent = received;
  connection->sent = sent;
  const int64_t calls = connection->calls.load(std::memory_order_relaxed);
  if (calls != connection->calls_seen) connection->before_call = received;
  connection->calls_seen = calls;
  CountCalls(connection);
  return active;
}

// A call that is answered shows that it was time.
void GrpcConnections::CountCalls(Connection* connection) {
  const int64_t early = connection->early, answered = connection->answered;
  connection->early_in_row = answered == connection->answered_seen
                                 ? connection->early_in_row + early - connection->early_seen
                                 : 0;
  connection->early_seen = early;
  connection->answered_seen = answered;
}

// Of a host that floods, a connection without a call so far that begins like the others is
// not waited for.
bool GrpcConnections::Floods(const Connection& connection) const {
  const bool is_one_more = connection.unanswered() > kSuspectBytes && connection.calls == 0 &&
                           flooding_.contains(connection.host);
  return is_one_more || connection.unanswered() > limits_.max_unanswered_bytes ||
         connection.held() > limits_.max_bytes;
}

void GrpcConnections::CloseFlooding() {
  for (auto next = active_.begin(); next != active_.end();) {
    const List::iterator place = (next++)->second;
    if (!Floods(*place)) continue;
    flooding_[place->host] = Clock::now() + limits_.ban;
    Close(place, Cut::kFlooding);
  }
  const auto less = [](const Connection& a, const Connection& b) { return a.held() < b.held(); };
  while (held_ > limits_.max_total_bytes) {
    Close(std::max_element(connections_.begin(), connections_.end(), less), Cut::kFlooding);
  }
}

// A part of them at each look: where there are fewer, the others may be answered.
void GrpcConnections::CloseInsistent() {
  size_t most = 1 + active_.size() / 20;
  for (auto next = active_.begin(); next != active_.end() && most > 0;) {
    const List::iterator place = (next++)->second;
    if (place->early_in_row <= kMaxEarlyInRow) continue;
    if (Clock::now() < place->spared_until.load()) continue;
    if (!IsSpared(place->host)) insistent_[place->host] = Clock::now() + limits_.insistent_ban;
    Close(place, Cut::kInsistent);
    --most;
  }
}

// Of the host that has most.
void GrpcConnections::CloseMostSilent() {
  if (connections_.empty()) return;
  const auto host_of = [](const Connection& one) { return absl::string_view(one.host); };
  Close(FirstCrowding(connections_.begin(), connections_.end(), host_of), Cut::kCrowded);
}

// Counts them, and returns how many each has too many: HTTP's are counted with them.
std::map<std::string, int64_t> GrpcConnections::ExcessOfOwners() {
  std::map<std::string, std::pair<ConnectionOwner, int64_t>> counts;
  for (const auto& [name, count] : owners_) counts[name].first.name = name;
  for (const Connection& one : connections_) {
    if (!one.owner.has_value()) continue;
    auto& [owner, count] = counts[one.owner->name];
    owner = *one.owner;
    ++count;
  }
  std::map<std::string, int64_t> excess;
  for (const auto& [name, counted] : counts) {
    const auto& [owner, count] = counted;
    excess[name] = callers_->Add(owner, count - owners_[name]);
    owners_[name] = count;
  }
  return excess;
}

// The most silent come first.
void GrpcConnections::CountOwners() {
  std::vector<List::iterator> closed;
  {
    const std::shared_lock lock(mutex_);
    std::map<std::string, int64_t> excess = ExcessOfOwners();
    for (auto place = connections_.begin(); place != connections_.end(); ++place) {
      if (place->owner.has_value() && excess[place->owner->name]-- > 0) closed.push_back(place);
    }
  }
  for (const List::iterator place : closed) Close(place, Cut::kCrowded);
}

void GrpcConnections::Heard(List::iterator connection) {
  connections_.splice(connections_.end(), connections_, connection);
}

// gRPC finds its end of the connection closed, and lets go of what it holds.
void GrpcConnections::Close(List::iterator connection, Cut why) {
  metrics_->ConnectionClosed(why);
  const std::string& peer = connection->peer.empty() ? "unix:" : connection->peer;
  const std::optional<int64_t> left_out = lines_.Take(peer, Clock::now());
  if (left_out.has_value()) {
    log_->Write(LogLevel::kWarning, "connection-closed",
                {{"peer", peer},
                 {"reason", NameOf(why)},
                 {"bytes", static_cast<double>(connection->held())},
                 {"left_out", static_cast<double>(*left_out)}});
  }
  // With a reset, or who floods would wait for a window.
  const linger at_once = {.l_onoff = 1, .l_linger = 0};
  setsockopt(connection->socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  shutdown(connection->socket.get(), SHUT_RDWR);
  Drop(connection);
}

void GrpcConnections::Drop(List::iterator connection) {
  held_ -= connection->held();
  active_.erase(connection->id);
  places_.erase(connection->id);
  // The socket lives on where gRPC has it open still.
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, connection->socket.get(), nullptr);
  bool had_owner = false;
  {
    const std::unique_lock lock(mutex_);
    had_owner = connection->owner.has_value();
    const auto found = by_peer_.find(connection->peer);
    if (found != by_peer_.end() && found->second == &*connection) by_peer_.erase(found);
  }
  if (had_owner) OwnersChanged();
  connections_.erase(connection);
  SetCount();
}

void GrpcConnections::SetCount() {
  metrics_->SetConnections(connections_.size());
  const std::lock_guard lock(count_mutex_);
  count_ = connections_.size();
  count_changed_.notify_all();
}

}  // namespace plimsoll
