#include "serve/sampler.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/philox.h"
#include "kernels/scalar.h"

namespace tutti {
namespace {

// From 0 to below 1.
double uniform(uint64_t seed, uint64_t sequence, uint64_t position) {
  constexpr std::string_view kStream = "sample";
  const uint64_t key = hash64(as_bytes(kStream), seed);
  const uint64_t high = random_bits(key, sequence, 2 * position);
  const uint64_t low = random_bits(key, sequence, 2 * position + 1);
  return static_cast<double>((high << 21) ^ (low >> 11)) * 0x1p-53;
}

struct Candidate {
  int32_t token;
  float logit;
};

// The likeliest first, and of equals the first.
void keep_likeliest(std::vector<Candidate>& all, int64_t most) {
  const auto likelier = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
  };
  const auto end = all.begin() + std::min<int64_t>(most, std::ssize(all));
  std::partial_sort(all.begin(), end, all.end(), likelier);
  all.erase(end, all.end());
}

}  // namespace

Result<void> check_sampling(const Sampling& sampling) {
  if (!(sampling.temperature >= 0) || std::isinf(sampling.temperature))
    return fail(Code::invalid, "temperature {} is not a number from 0 on", sampling.temperature);
  if (sampling.top_k < 0)
    return fail(Code::invalid, "top_k {} is below 0; 0 means all tokens", sampling.top_k);
  if (!(sampling.top_p > 0 && sampling.top_p <= 1))
    return fail(Code::invalid, "top_p {} is not a probability above 0", sampling.top_p);
  return {};
}

Result<int32_t> sample(std::span<const float> logits, const Sampling& sampling, uint64_t sequence,
                       uint64_t position) {
  size_t best = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i]))
      return fail(Code::invalid,
                  "the logit of token {} at position {} of sequence {} is not a number", i,
                  position, sequence);
    if (logits[i] > logits[best]) best = i;
  }
  const float highest = logits[best];
  if (sampling.temperature == 0 || std::isinf(highest)) return static_cast<int32_t>(best);
  std::vector<Candidate> all(logits.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = {static_cast<int32_t>(i), logits[i]};
  if (sampling.top_k > 0) keep_likeliest(all, sampling.top_k);
  if (sampling.top_p < 1) keep_likeliest(all, std::ssize(all));
  std::vector<double> sums;  // of probabilities, up to and with each
  double total = 0;
  for (const Candidate& each : all) {
    const double height = (double{each.logit} - double{highest}) / sampling.temperature;
    sums.push_back(total += double{exp_scalar(static_cast<float>(height))});
  }
  if (sampling.top_p < 1) {
    const auto enough = std::ranges::lower_bound(sums, sampling.top_p * total);
    if (enough != sums.end()) sums.erase(enough + 1, sums.end());
  }
  const double wanted = uniform(sampling.seed, sequence, position) * sums.back();
  const auto found = std::ranges::upper_bound(sums, wanted);
  return all[static_cast<size_t>(std::min(found, sums.end() - 1) - sums.begin())].token;
}

}  // namespace tutti
