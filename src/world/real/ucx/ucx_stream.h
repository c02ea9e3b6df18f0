// A stream that UCX carries. Bytes travel in numbered messages: small ones are copied, up to a
// window that the reader opens again as it reads; large parts of a write stay where they are, and
// the reader fetches them right to where it wants them.
#pragma once

#include <map>
#include <optional>

#include "world/real/ucx/ucx_carrier.h"

namespace tutti {

class UcxStream final : public CarriedStream {
 public:
  UcxStream(UcxCarrier& carrier, uint64_t end);
  ~UcxStream() override;

  Bytes words() const override { return as_bytes(words_); }
  Result<void> attach(Bytes theirs, std::unique_ptr<Stream> connection) override;
  void let_go_read() override;
  void let_go_write() override;

  Result<void> shutdown_write() override;
  Result<Credentials> peer_credentials() const override;

  // ---- For the carrier ----
  // In a callback of UCX: a message came.
  ucs_status_t came(const UcxHeader& header, void* data, size_t bytes, bool fetched_later);
  // What was noted in callbacks is acted upon.
  void advance();
  void break_with(const Error& why);
  // The connection did: with how many messages the other side sent, if it said so.
  void connection_ended(std::optional<uint64_t> messages);

 private:
  struct Message {
    std::string bytes;
    size_t read = 0;        // of them
    void* later = nullptr;  // UCX's name for what is fetched by its reader
    size_t later_bytes = 0;
    bool counted = true;  // against the window
  };

  bool try_read(Read& read) override { return attempt(read); }
  void park_read(Read& read) override { read_ = &read; }
  void withdraw_read(Read& read) override;
  bool try_write(Write& write) override { return attempt(write); }
  void park_write(Write& write) override { write_ = &write; }
  void withdraw_write(Write& write) override;

  bool attempt(Read& read);
  bool attempt(Write& write);
  size_t take_copied(MutableBytes into);
  void fetch(Message& message, Read& read);
  void send_in_place(Bytes part, Write& write);
  bool send_copied(Write& write);
  void open_window();
  void finish_fetch();
  void finish_send();
  void drop_inbox();
  static void on_sent(void* request, ucs_status_t status, void* self);
  static void on_fetched(void* request, ucs_status_t status, size_t bytes, void* self);

  UcxCarrier& carrier_;
  uint64_t end_;
  std::string words_;
  uint64_t their_end_ = 0;
  std::shared_ptr<UcxPeer> peer_;
  std::unique_ptr<UcxTether> tether_;
  std::optional<Error> broken_;
  std::optional<uint64_t> all_;  // messages that there will have been: the other side is done
  // Out.
  Write* write_ = nullptr;
  uint64_t sent_ = 0;           // messages
  uint64_t copied_bytes_ = 0;   // of small messages
  uint64_t allowed_bytes_ = 0;  // how many of them may be
  bool sending_ = false;        // in place
  UcxHeader sending_header_;
  size_t sending_bytes_ = 0;
  std::optional<ucs_status_t> send_status_;
  // In.
  Read* read_ = nullptr;
  std::map<uint64_t, Message> inbox_;  // by number
  uint64_t next_ = 0;                  // to be read
  uint64_t stored_bytes_ = 0;
  size_t unfetched_ = 0;
  uint64_t read_bytes_ = 0;    // of small messages
  uint64_t opened_bytes_ = 0;  // what the other side was told of that
  bool fetching_ = false;
  bool fetching_here_ = false;  // into memory of ours, not of who reads
  std::optional<ucs_status_t> fetch_status_;
};

}  // namespace tutti
