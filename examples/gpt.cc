// The model of gpt.py in C++, weight for weight and operation for operation.
//
//   gpt --graph [LAYERS HEADS WIDTH CONTEXT VOCABULARY DROPOUT]    prints the graph of its loss
//   gpt --text=FILE [--model.layers=4 --steps=100 …]               trains it, with gpt.py's bits
//   gpt --text=FILE … --prompt=TEXT [--tokens=200 …]               … and goes on from a prompt
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "base/suggest.h"
#include "compile/model.h"
#include "rank/trainer_machine.h"
#include "serve/generation.h"
#include "train/progress.h"
#include "train/tokens.h"
#include "train/trainer.h"
#include "world/real/real_world.h"

using namespace tutti;

namespace {

struct GptConfig {
  int64_t layers = 12;
  int64_t heads = 12;
  int64_t width = 768;
  int64_t context = 1024;  // the longest sequence
  int64_t vocabulary = 50257;
  double dropout = 0;
};

constexpr double kDeviation = 0.02;

class Gpt {
 public:
  Gpt(ModelBuilder& model, GptConfig config) : m_(model), config_(config) {}

  Tensor features(const Tensor& tokens) {
    wte_ = parameter("wte", "weight", {{"vocab", config_.vocabulary}, embed_}, normal(kDeviation));
    const Tensor wpe =
        parameter("wpe", "weight", {{"place", config_.context}, embed_}, normal(kDeviation));
    Builder& b = m_.ops();
    const Tensor words = b.gather(wte_, tokens, "vocab");
    const Tensor places = m_.positions("time", tokens.type().size_of("time"));
    const Tensor x = words + b.gather(wpe, places, "place");
    const Tensor y = m_.layers(config_.layers, "h", m_.dropout(x, config_.dropout),
                               [&](const Tensor& in) { return block(in); });
    return norm(y, "ln_f");
  }

  Tensor logits(const Tensor& tokens) {
    const Tensor x = features(tokens);
    return m_.ops().matmul(x, wte_, {"embed"});
  }

  // The mean of a batch.
  Tensor loss(const Tensor& tokens, const Tensor& targets) {
    const Tensor x = features(tokens);
    Builder& b = m_.ops();
    return b.mean(b.linear_cross_entropy(x, wte_, targets, "embed", "vocab"), {"batch", "time"});
  }

 private:
  Tensor parameter(std::string_view module, std::string_view name, Dims dims, Init init) {
    const auto scope = m_.scope(module);
    const bool decay = dims.size() > 1;
    return m_.parameter(name, std::move(dims), init, decay);
  }

  Tensor linear(const Tensor& x, std::string_view name, const Dim& in, const Dim& out,
                double deviation) {
    const Tensor weight = parameter(name, "weight", {in, out}, normal(deviation));
    const Tensor bias = parameter(name, "bias", {out}, kZeros);
    return m_.ops().matmul(x, weight, {in.name}) + bias;
  }

  Tensor norm(const Tensor& x, std::string_view name) {
    const Tensor weight = parameter(name, "weight", {embed_}, kOnes);
    const Tensor bias = parameter(name, "bias", {embed_}, kZeros);
    return m_.ops().layer_norm(x, weight, bias, "embed");
  }

  // Queries, keys or values of all heads, out of what holds them side by side.
  Tensor heads(const Tensor& qkv, int64_t which) {
    Builder& b = m_.ops();
    const Tensor part = b.slice(qkv, "qkv", which * config_.width, config_.width);
    Dims dims = qkv.type().dims;
    dims.pop_back();
    dims.push_back({"heads", config_.heads});
    dims.push_back({"head", config_.width / config_.heads});
    return b.reshape(part, dims);
  }

  Tensor attention(const Tensor& x) {
    const auto scope = m_.scope("attn");
    const Tensor qkv = linear(x, "c_attn", embed_, {"qkv", 3 * config_.width}, kDeviation);
    const Tensor q = heads(qkv, 0);
    const Tensor k = heads(qkv, 1);
    const Tensor v = heads(qkv, 2);
    Builder& b = m_.ops();
    const Tensor keys = b.rename(k, "time", "keys");
    const Tensor mixed = m_.attention(q, keys, b.rename(v, "time", "keys"));
    const Dim joined{"mixed", config_.width};
    const Tensor flat = b.reshape(mixed, {mixed.type().dims[0], mixed.type().dims[1], joined});
    return linear(flat, "c_proj", joined, embed_, residual_);
  }

  Tensor mlp(const Tensor& x) {
    const auto scope = m_.scope("mlp");
    const Dim hidden{"hidden", 4 * config_.width};
    const Tensor up = linear(x, "c_fc", embed_, hidden, kDeviation);
    return linear(m_.ops().gelu(up, true), "c_proj", hidden, embed_, residual_);
  }

  Tensor block(const Tensor& in) {
    const Tensor middle = in + m_.dropout(attention(norm(in, "ln_1")), config_.dropout);
    return middle + m_.dropout(mlp(norm(middle, "ln_2")), config_.dropout);
  }

  ModelBuilder& m_;
  GptConfig config_;
  Dim embed_{"embed", config_.width};
  double residual_ = kDeviation / std::sqrt(2.0 * static_cast<double>(config_.layers));
  Tensor wte_;
};

Result<Model> gpt_loss(const GptConfig& config, int64_t batch, int64_t time) {
  ModelBuilder m("gpt");
  const Type sequences{DType::i32, {{"batch", batch}, {"time", time}}};
  const Tensor tokens = m.input("tokens", sequences);
  const Tensor targets = m.input("targets", sequences);
  m.output("loss", Gpt(m, config).loss(tokens, targets));
  return m.build();
}

// Of one token or many, after those that are in its caches.
Result<Model> gpt_logits(const GptConfig& config, const DecodingShape& shape) {
  ModelBuilder m("gpt", ModelUse::generate);
  m.keep_cache(shape.cache);
  const Dims dims{{"batch", shape.cache.sequences}, {"time", shape.time}};
  m.output("logits", Gpt(m, config).logits(m.input("tokens", {DType::i32, dims})));
  return m.build();
}

int print_graph(int count, char** numbers) {
  GptConfig config;
  int64_t* const sizes[] = {&config.layers, &config.heads, &config.width, &config.context,
                            &config.vocabulary};
  for (int i = 0; i < count && i < 5; ++i) *sizes[i] = std::atoll(numbers[i]);
  if (count > 5) config.dropout = std::atof(numbers[5]);
  const auto model = gpt_loss(config, 2, config.context);
  if (!model) {
    std::fprintf(stderr, "gpt: %s\n", model.error().text().c_str());
    return 1;
  }
  std::fputs(model->graph.text().c_str(), stdout);
  return 0;
}

struct RunConfig {
  GptConfig model;
  int64_t steps = 1000;
  int64_t batch = 16;
  int64_t context = 256;
  int64_t seed = 0;
  int64_t threads = 0;
  std::string text;
  std::string out;  // where the weights go
  std::string prompt;
  int64_t tokens = 200;
  double temperature = 0.8;
};

constexpr uint64_t kMostText = uint64_t{1} << 30;
constexpr int64_t kRecordSteps = 10;

template <class Number>
Result<void> read_number(std::string_view key, std::string_view text, Number& to) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), to);
  if (error == std::errc() && end == text.data() + text.size()) return {};
  return fail(Code::invalid, "--{}={}: this is no number that it could be", key, text);
}

// --key=value, of the keys that gpt.py has too, and tutti generate.
Result<RunConfig> parse(int count, char** words) {
  RunConfig config;
  const std::map<std::string_view, int64_t*> numbers{{"model.layers", &config.model.layers},
                                                     {"model.heads", &config.model.heads},
                                                     {"model.width", &config.model.width},
                                                     {"steps", &config.steps},
                                                     {"batch", &config.batch},
                                                     {"context", &config.context},
                                                     {"seed", &config.seed},
                                                     {"threads", &config.threads},
                                                     {"tokens", &config.tokens}};
  const std::map<std::string_view, std::string*> texts{
      {"text", &config.text}, {"out", &config.out}, {"prompt", &config.prompt}};
  for (int i = 0; i < count; ++i) {
    const std::string_view word = words[i];
    const size_t equals = word.find('=');
    if (!word.starts_with("--") || equals == std::string_view::npos)
      return fail(Code::invalid, "'{}' is no option; write --key=value", word);
    const std::string_view key = word.substr(2, equals - 2);
    const std::string_view value = word.substr(equals + 1);
    if (const auto text = texts.find(key); text != texts.end()) {
      *text->second = value;
    } else if (const auto number = numbers.find(key); number != numbers.end()) {
      TRY_DO(read_number(key, value, *number->second));
    } else if (key == "temperature") {
      TRY_DO(read_number(key, value, config.temperature));
    } else {
      std::vector<std::string_view> known{"temperature"};
      for (const auto& [name, to] : numbers) known.push_back(name);
      for (const auto& [name, to] : texts) known.push_back(name);
      const auto near = suggest(key, known);
      return fail(Code::invalid, "there is no option --{}{}", key,
                  near ? fmt::format("; did you mean --{}?", *near) : "");
    }
  }
  config.model.context = config.context;
  return config;
}

struct Text {
  std::shared_ptr<const Tokens> train;
  std::shared_ptr<const Tokens> validation;
  std::map<char, uint16_t> numbers;  // of characters
};

// Every character a token, in their order; the last tenth is for validation. ASCII alone.
Result<Text> read_text(RealWorld& world, const std::string& path) {
  TRY(const std::string text, world.run(read_file(world.disk(), path, kMostText)));
  const std::set<char> characters(text.begin(), text.end());
  if (text.empty() || *characters.begin() < 0)
    return fail(Code::invalid, "{}: characters past ASCII, or none, are for gpt.py", path);
  std::map<char, uint16_t> numbers;
  for (const char each : characters) numbers.emplace(each, numbers.size());
  std::vector<uint16_t> all;
  for (const char each : text) all.push_back(numbers.at(each));
  const Tokens tokens = Tokens::of(std::move(all), path);
  const auto held_out = static_cast<uint64_t>(static_cast<double>(text.size()) * 0.1);
  const uint64_t border = text.size() - held_out;
  return Text{.train = std::make_shared<const Tokens>(tokens.part(0, border)),
              .validation = std::make_shared<const Tokens>(tokens.part(border, held_out)),
              .numbers = std::move(numbers)};
}

// Goes on from the prompt with the weights as they are.
Result<void> write_text(const RunConfig& config, const Text& text, const Trainer& trainer,
                        TrainerHost host) {
  TokenList prompt;
  std::string characters(text.numbers.size(), ' ');
  for (const auto& [character, number] : text.numbers) characters[number] = character;
  for (const char each : config.prompt) {
    const auto found = text.numbers.find(each);
    if (found == text.numbers.end())
      return fail(Code::invalid, "the prompt has '{}', which the text has not", each);
    prompt.push_back(found->second);
  }
  TRY(const auto decoder,
      Decoder::make([&](const DecodingShape& shape) { return gpt_logits(config.model, shape); },
                    [&](const Parameter& each) { return trainer.weights(each); },
                    {.cache = {.sequences = 1, .places = config.context}}, host.device));
  const Sampling sampling{.temperature = config.temperature,
                          .seed = static_cast<uint64_t>(config.seed)};
  Generation generation(*decoder, {.tokens = config.tokens, .sampling = sampling});
  TRY_DO(generation.start({prompt}));
  std::string made = config.prompt;
  while (!generation.done()) {
    TRY(const auto next, generation.next());
    for (const NextToken& each : next) made += characters[static_cast<size_t>(each.token)];
  }
  std::printf("%s\n", made.c_str());
  return {};
}

Result<void> train(RunConfig config) {
  RealWorld world;
  TRY(const Text text, read_text(world, config.text));
  config.model.vocabulary = std::ssize(text.numbers);
  if (config.model.heads < 1 || config.model.width % config.model.heads != 0)
    return fail(Code::invalid, "a width of {} cannot be parted into {} heads", config.model.width,
                config.model.heads);
  TRY(Model model, gpt_loss(config.model, config.batch, config.context));
  TRY(const auto machine, TrainerMachine::open({.threads = static_cast<int>(config.threads)}));
  const auto vocabulary = static_cast<uint32_t>(text.numbers.size());
  TokenBatches batches(text.train,
                       {.seed = static_cast<uint64_t>(config.seed), .vocabulary = vocabulary});
  const TrainerOptions options{
      .step = {.max_norm = 1, .adamw = {.beta1 = 0.9, .beta2 = 0.95, .decay = 0.1}},
      .schedule = {.rate = 6e-4,
                   .least = 6e-5,
                   .warm_up = 100,
                   .end = config.steps,
                   .decline = Decline::cosine},
      .seed = config.seed};
  TRY(const auto trainer, Trainer::make(std::move(model), options, batches, machine->host()));
  if (!trainer->has_state()) trainer->initialise_weights();
  ProgressMeter meter(trainer->plan(), config.steps);
  meter.set_peak(machine->peak_flops());
  while (trainer->steps_done() < config.steps) {
    TRY(const StepSummary report, trainer->step());
    meter.add(report);
    if (report.step == 1 || report.step == config.steps || report.step % kRecordSteps == 0)
      std::puts(progress_text(meter.take(machine->memory_bytes())).c_str());
  }
  TokenBatches held_out(text.validation,
                        {.vocabulary = vocabulary, .order = SampleOrder::consecutive});
  const auto windows = (static_cast<int64_t>(text.validation->size()) - 1) / config.context;
  TRY(const double loss, trainer->evaluate(held_out, (windows + config.batch - 1) / config.batch));
  std::printf("validation loss %.4f\ndigest %016llx\n", loss,
              static_cast<unsigned long long>(trainer->digest()));
  if (!config.out.empty()) TRY_DO(world.run(trainer->save_weights(world.disk(), config.out)));
  return config.prompt.empty() ? Result<void>()
                               : write_text(config, text, *trainer, machine->host());
}

int train_with(int count, char** words) {
  auto config = parse(count, words);
  const auto done = config ? train(*std::move(config)) : Result<void>(fail(config.error()));
  if (done) return 0;
  std::fprintf(stderr, "gpt: %s\n", done.error().text().c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "--graph") return print_graph(argc - 2, argv + 2);
  if (argc > 1) return train_with(argc - 1, argv + 1);
  std::fputs(
      "usage: gpt --graph [LAYERS HEADS WIDTH CONTEXT VOCABULARY DROPOUT]\n"
      "       gpt --text=FILE [--model.layers=12 --model.heads=12 --model.width=768 --context=256\n"
      "                        --batch=16 --steps=1000 --seed=0 --threads=0 --out=WEIGHTS\n"
      "                        --prompt=TEXT --tokens=200 --temperature=0.8]\n",
      stderr);
  return 2;
}
