// Golden packs: inputs, float64 outputs, and what rounding costs on each (safetensors).
#pragma once

#include <cstring>
#include <limits>

#include "artifact.hpp"

namespace linattn {

constexpr double kSensitivityFactor = 3;  // the constants of linattn-check's verdict
constexpr double kMost = 4;
constexpr double kInconclusive = 0.05;  // rounding alone moves such an output by 5 %

class GoldenPack {
 public:
  explicit GoldenPack(const std::filesystem::path& path) : bytes_(read_file(path)) {
    uint64_t length = 0;
    std::memcpy(&length, bytes_.data(), sizeof length);  // little endian
    start_ = sizeof length + length;
    header_ = Json::parse(bytes_.substr(sizeof length, length));
    const auto index = header_.at("__metadata__").at("linattn.reference").get<std::string>();
    cases = Json::parse(index).at("cases");
    header_.erase("__metadata__");
  }

  // The tensors of a case by name; `kind` is "input" or "output".
  Tensors tensors(const Json& about, const std::string& kind) const {
    const auto prefix = about.at("stored").get<std::string>() + "/" + kind + "/";
    Tensors found;
    for (const auto& [key, spec] : header_.items()) {
      if (key.rfind(prefix, 0) != 0) continue;
      const auto stored = tensor(spec);
      // A case of more sequences than are stored runs them over and over.
      const auto rows = torch::arange(about.at("batch").get<int64_t>()).remainder(stored.size(0));
      found[key.substr(prefix.size())] = stored.index_select(0, rows);
    }
    return found;
  }

  Json cases;

 private:
  torch::Tensor tensor(const Json& spec) const {
    static const std::map<std::string, torch::ScalarType> known = {{"F64", torch::kDouble},
                                                                   {"F32", torch::kFloat},
                                                                   {"F16", torch::kHalf},
                                                                   {"I64", torch::kLong},
                                                                   {"BOOL", torch::kBool}};
    const auto shape = spec.at("shape").get<std::vector<int64_t>>();
    auto made = torch::empty(shape, known.at(spec.at("dtype").get<std::string>()));
    const auto from = spec.at("data_offsets").at(0).get<size_t>();
    std::memcpy(made.data_ptr(), bytes_.data() + start_ + from, made.nbytes());
    return made;
  }

  std::string bytes_;
  size_t start_ = 0;
  Json header_;
};

// What rounding costs on a case, by "row" or "whole".
inline double yardstick(const Json& about, const char* part) {
  const auto number = [&](const char* name) {
    const auto& stored = about.at(name).at(part);  // text where it is infinite
    return stored.is_number() ? stored.get<double>() : std::numeric_limits<double>::infinity();
  };
  return std::max(number("eager_error"), kSensitivityFactor * number("sensitivity"));
}

// Whether anything can be judged on a case.
inline bool conclusive(const Json& about) {
  return std::max(yardstick(about, "row"), yardstick(about, "whole")) <= kInconclusive;
}

// By how many roundings `actual` departs from `expected`: at most kMost is right.
inline double multiple(const torch::Tensor& actual, const torch::Tensor& expected,
                       const Json& about) {
  const auto infinite = std::numeric_limits<double>::infinity();
  if (actual.sizes() != expected.sizes()) return infinite;
  const auto apart = (actual.to(torch::kDouble) - expected).norm(2, -1);
  if (!apart.isfinite().all().item<bool>()) return infinite;
  const auto norms = expected.norm(2, -1);
  const auto counted = norms > 0;
  // A row of zeros is zero by definition.
  if (apart.masked_select(~counted).any().item<bool>()) return infinite;
  if (!counted.any().item<bool>()) return 0;
  const auto distances = apart.masked_select(counted);
  const auto sizes = norms.masked_select(counted);
  const auto row = (distances / sizes).max().item<double>();
  const auto whole = (distances.norm() / sizes.norm()).item<double>();
  const auto quotient = [&](double error, const char* part) {
    return error == 0 ? 0 : error / yardstick(about, part);
  };
  return std::max(quotient(row, "row"), quotient(whole, "whole"));
}

}  // namespace linattn
