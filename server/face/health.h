// Asks a server for its health.
#ifndef PLIMSOLL_SERVER_FACE_HEALTH_H_
#define PLIMSOLL_SERVER_FACE_HEALTH_H_

#include <chrono>
#include <memory>
#include <string>

#include "grpcpp/channel.h"

namespace plimsoll {

// Returns why the server does not serve, or an empty string.
std::string AskHealth(const std::shared_ptr<grpc::Channel>& channel,
                      std::chrono::milliseconds timeout);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_FACE_HEALTH_H_
