#include "wire/outbox.h"

#include <algorithm>

namespace tutti::wire {

void BulkSend::start(Blob blob, uint32_t stream, uint8_t flags) {
  rest_ = blob.size();
  blob_ = std::move(blob);
  stream_ = stream;
  flags_ = flags;
}

void BulkSend::stop() {
  unlink();
  rest_ = 0;
  blob_ = Blob();
}

void Outbox::add_bulk(BulkSend& bulk) {
  bulk_.push_back(bulk);
  wake_writer();
}

std::span<const Bytes> Outbox::take() {
  std::swap(filling_, writing_);
  small_part_ = writing_.bytes();
  if (bulk_.empty()) return {&small_part_, writing_.empty() ? 0U : 1U};
  if (!pieces_) pieces_ = std::make_unique<Pieces>();
  size_t parts = 0;
  size_t bytes = writing_.size();
  pieces_->parts[parts++] = small_part_;
  while (!bulk_.empty() && pieces_->count < kMaxBatchPieces && bytes < kMaxBatchBytes) {
    pieces_->parts[parts++] = pieces_->headers[pieces_->count];
    pieces_->parts[parts] = take_piece();
    bytes += pieces_->parts[parts++].size();
  }
  return {pieces_->parts.data(), parts};
}

Bytes Outbox::take_piece() {
  const size_t index = pieces_->count++;
  BulkSend& bulk = bulk_.pop_front();
  const size_t size = std::min<uint64_t>({bulk.rest_, bulk.credit, kMaxFramePayload});
  pieces_->blobs[index] = bulk.blob_;
  const Bytes piece = bulk.blob_.bytes().subspan(bulk.blob_.size() - bulk.rest_, size);
  store_frame_header(pieces_->headers[index].data(), FrameType::data, bulk.flags_, bulk.stream_,
                     piece);
  bulk.rest_ -= size;
  bulk.credit -= size;
  if (bulk.rest_ == 0) {
    bulk.stop();
    bulk.bulk_done();
  } else if (bulk.credit != 0) {
    bulk_.push_back(bulk);
  }
  return piece;
}

void Outbox::release_idle() {
  if (filling_.empty()) filling_.release();
  if (writing_.empty()) writing_.release();
  if (pieces_ && pieces_->count == 0) pieces_.reset();
}

void Outbox::done() {
  writing_.clear();
  if (writing_.capacity() > kKeptCapacity) writing_.release();
  if (!pieces_) return;
  while (pieces_->count != 0) pieces_->blobs[--pieces_->count] = Blob();
}

}  // namespace tutti::wire
