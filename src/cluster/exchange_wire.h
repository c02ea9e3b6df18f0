// What a rank and its host's agent say to each other to meet others of the job: one request and one
// answer on each connection to the agent's exchange socket. docs/exchange.md has the layout;
// python/tutti/exchange.py and include/tutti/exchange.h are the other end.
#pragma once

#include <cstdint>
#include <string>

#include "base/units.h"
#include "world/world.h"

namespace tutti {

constexpr const char* kExchangeVariable = "TUTTI_EXCHANGE";  // where ranks find the socket

constexpr size_t kMaxExchangeName = 256;        // of a barrier or a key, in bytes
constexpr size_t kMaxExchangeValue = 64 << 10;  // enough for addresses and keys, not for tensors
constexpr size_t kMaxGangTable = 64 << 20;      // a line for each host

struct ExchangeRequest {
  enum class Op : uint16_t { barrier = 1, put = 2, get = 3, ready = 4, gang = 5 };
  Op op = Op::barrier;
  uint64_t job = 0;
  uint64_t life = 0;        // the epoch in which the process was started
  uint64_t gang_epoch = 0;  // as an answer told it; 0 before the first
  uint64_t round = 0;  // barriers of this name before; of a put, its serial; of gang, the epoch
  int64_t timeout_ns = -1;  // negative: none
  uint32_t process = 0;     // of ready: the number of the spare
  std::string name;
  std::string value;
};

struct ExchangeAnswer {
  bool ok = true;
  Code code = Code::internal;  // of what is not ok
  uint64_t gang_epoch = 0;
  std::string message;
  std::string value;
};

std::string encode(const ExchangeRequest& request);
std::string encode(const ExchangeAnswer& answer);

// Code::invalid with the limit for what is too large or makes no sense; the stream is good only
// for an answer then.
Task<Result<ExchangeRequest>> read_request(Stream& stream);
Task<Result<ExchangeAnswer>> read_answer(Stream& stream);

}  // namespace tutti
