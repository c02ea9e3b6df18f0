// Generation for Python. Nothing is decided here: tutti.Generator says what is wanted, src/serve
// does it.
#include "decoder.h"

#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "raise.h"
#include "run/cpu_device.h"
#include "serve/generation.h"
#include "train/weights_file.h"
#include "world/real/native_compiler.h"
#include "world/real/pages.h"
#include "world/real/process_memory.h"
#include "world/real/real_world.h"
#include "world/real/thread_team.h"

namespace nb = nanobind;

using tutti::Model;
using tutti::Parameter;
using tutti::Result;

namespace {

constexpr uint64_t kAlignment = 64;

// All parameters of a model, in memory of large pages: a step reads every one of them once.
class Weights {
 public:
  tutti::Task<Result<void>> read(tutti::Disk& disk, std::string path,
                                 const std::vector<Parameter>& parameters) {
    CO_TRY(const auto file, co_await tutti::open_safetensors(disk, std::move(path)));
    uint64_t bytes = 0;
    for (const Parameter& each : parameters) bytes += room(each);
    CO_TRY(pages_, tutti::Pages::make(bytes));
    std::byte* next = pages_.bytes().data();
    for (const Parameter& each : parameters) {
      CO_TRY_DO(tutti::read_parameter(*file, each, next));
      places_[each.name] = reinterpret_cast<const float*>(next);
      next += room(each);
    }
    co_return {};
  }

  Result<const float*> find(const Parameter& parameter) const {
    const auto found = places_.find(parameter.name);
    if (found == places_.end())
      return tutti::fail(tutti::Code::internal,
                         "the two traces of the model differ: only one has {}", parameter.name);
    return found->second;
  }

 private:
  static uint64_t room(const Parameter& parameter) {
    return (static_cast<uint64_t>(parameter.type.bytes()) + kAlignment - 1) / kAlignment *
           kAlignment;
  }

  tutti::Pages pages_;
  std::map<std::string, const float*> places_;
};

class PythonDecoder {
 public:
  // Traced for one token at a time, and for a chunk of them.
  PythonDecoder(const Model& step, const Model& chunk, const std::string& weights,
                int64_t sequences, int64_t places, int64_t chunk_size, int threads,
                bool keep_packed)
      : team_(threads), compiler_(tutti::make_native_compiler()) {
    const auto trace = [&](const tutti::DecodingShape& shape) -> Result<Model> {
      return shape.time == 1 ? step : chunk;
    };
    const auto make = [&] -> Result<void> {
      const nb::gil_scoped_release others_may_run;
      tutti::RealWorld world;
      TRY_DO(world.run(weights_.read(world.disk(), weights, step.parameters)));
      TRY(decoder_,
          tutti::Decoder::make(
              trace, [this](const Parameter& each) { return weights_.find(each); },
              {.cache = {sequences, places}, .chunk = chunk_size, .keep_packed = keep_packed},
              device_));
      return {};
    };
    const auto made = make();
    if (!made) raise(made.error());
  }

  void start(const std::vector<tutti::TokenList>& prompts, int64_t tokens, double temperature,
             int64_t top_k, double top_p, uint64_t seed, tutti::TokenList stop,
             std::optional<int64_t> keep) {
    generation_.emplace(*decoder_,
                        tutti::GenerationOptions{.tokens = tokens,
                                                 .sampling = {temperature, top_k, top_p, seed},
                                                 .stop = std::move(stop),
                                                 .keep = keep});
    Result<void> started;
    {
      const nb::gil_scoped_release others_may_run;
      started = generation_->start(prompts);
    }
    if (!started) raise(started.error());
  }

  // [(sequence, token, why it ended or None)], empty when all have.
  nb::list next() {
    if (!generation_)
      raise(tutti::Error(tutti::Code::invalid, "nothing was started that could go on"));
    std::optional<Result<std::vector<tutti::NextToken>>> made;
    {
      const nb::gil_scoped_release others_may_run;
      made.emplace(generation_->next());
    }
    nb::list all;
    for (const tutti::NextToken& each : value_or_raise(*std::move(made))) {
      nb::object ending = nb::none();
      if (each.ending) {
        const std::string_view name = tutti::ending_name(*each.ending);
        ending = nb::str(name.data(), name.size());
      }
      all.append(nb::make_tuple(each.sequence, each.token, ending));
    }
    return all;
  }

  int64_t cache_bytes() const { return decoder_->cache_bytes(); }
  int64_t vocabulary() const { return decoder_->vocabulary(); }

 private:
  tutti::ThreadTeam team_;
  std::unique_ptr<tutti::NativeCompiler> compiler_;
  tutti::RealProcessMemory memory_;
  tutti::CpuDevice device_{team_, *compiler_, memory_};
  Weights weights_;
  std::unique_ptr<tutti::Decoder> decoder_;
  std::optional<tutti::Generation> generation_;
};

}  // namespace

void bind_decoder(nb::module_& module) {
  nb::class_<PythonDecoder>(module, "Decoder")
      .def(nb::init<const Model&, const Model&, const std::string&, int64_t, int64_t, int64_t, int,
                    bool>(),
           nb::arg("step"), nb::arg("chunk"), nb::arg("weights"), nb::arg("sequences"),
           nb::arg("places"), nb::arg("chunk_size"), nb::arg("threads"),
           nb::arg("keep_packed") = false)
      .def("start", &PythonDecoder::start, nb::arg("prompts"), nb::arg("tokens"),
           nb::arg("temperature"), nb::arg("top_k"), nb::arg("top_p"), nb::arg("seed"),
           nb::arg("stop"), nb::arg("keep").none())
      .def("next", &PythonDecoder::next)
      .def_prop_ro("cache_bytes", &PythonDecoder::cache_bytes)
      .def_prop_ro("vocabulary", &PythonDecoder::vocabulary);
}
