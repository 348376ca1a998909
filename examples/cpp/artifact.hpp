// A TorchScript artifact that is run only on what the manifest says was verified. To be copied.
#pragma once

#include <openssl/evp.h>
#include <torch/script.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace linattn {

using Json = nlohmann::json;
using Tensors = std::map<std::string, torch::Tensor>;

// A file or an input that nobody vouches for.
struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    throw Refused("cannot read " + path.string() + "; give what linattn-export build wrote");
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

inline std::string sha256(const std::string& content) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  if (EVP_Digest(content.data(), content.size(), digest, &size, EVP_sha256(), nullptr) != 1) {
    throw std::runtime_error("OpenSSL computes no SHA-256");
  }
  std::string text;
  char byte[3];
  for (unsigned int place = 0; place < size; ++place) {
    std::snprintf(byte, sizeof byte, "%02x", digest[place]);
    text += byte;
  }
  return text;
}

inline torch::ScalarType type_of(const std::string& dtype) {
  static const std::map<std::string, torch::ScalarType> known = {{"float32", torch::kFloat},
                                                                 {"float16", torch::kHalf},
                                                                 {"int64", torch::kLong},
                                                                 {"bool", torch::kBool}};
  return known.at(dtype);
}

class Artifact {
 public:
  // Opens the artifact called `id` in `folder`, or the first in TorchScript where `id` is empty.
  Artifact(const std::filesystem::path& folder, const std::string& id) {
    const auto manifest = Json::parse(read_file(folder / "linattn_manifest.json"));
    const auto schema = manifest.at("schema_version").get<std::string>();
    if (schema.rfind("1.", 0) != 0) {
      throw Refused("manifest " + schema + " is not 1.x, which this code reads");
    }
    for (const auto& artifact : manifest.at("artifacts")) {
      if (artifact.at("format") == "torchscript" && (id.empty() || artifact.at("id") == id)) {
        about = artifact;
        break;
      }
    }
    if (about.is_null()) {
      throw Refused(folder.string() + " has no TorchScript artifact " + id +
                    "; build it with -f torchscript");
    }
    if (about.at("verdict") != "PASS") {
      throw Refused(name() + " is " + about.at("verdict").get<std::string>() +
                    ", not PASS; linattn-check says why");
    }
    // What was hashed is what is loaded: loading TorchScript runs code.
    const auto path = about.at("path").get<std::string>();
    const auto content = read_file(folder / path);
    const auto digest = sha256(content);
    if (digest != about.at("sha256")) {
      throw Refused(path + " has SHA-256 " + digest + ", the manifest says " +
                    about.at("sha256").get<std::string>() + "; copy the folder again");
    }
    std::istringstream stream(content);
    module_ = torch::jit::load(stream);
    module_.eval();
  }

  std::string name() const { return about.at("id").get<std::string>(); }

  // Whether `size` of the axis `batch` or `sequence` was verified.
  bool verified(const std::string& axis, int64_t size) const {
    const auto [low, high] = range(axis);
    return low <= size && size <= high;
  }

  // The first output; throws Refused for names, types and sizes that were not verified.
  torch::Tensor operator()(const Tensors& inputs) {
    check(inputs);
    const torch::InferenceMode guard;
    std::vector<torch::jit::IValue> arguments;
    for (const auto& spec : about.at("inputs")) {
      arguments.emplace_back(inputs.at(spec.at("name").get<std::string>()));
    }
    const auto output = module_.forward(arguments);
    return output.isTuple() ? output.toTuple()->elements().at(0).toTensor() : output.toTensor();
  }

  Json about;  // the artifact's entry in the manifest

 private:
  std::pair<int64_t, int64_t> range(const std::string& axis) const {
    for (const auto& known : about.at("axes")) {
      if (known.at("name") == axis && !known.at("verified").is_null()) {
        return known.at("verified").get<std::pair<int64_t, int64_t>>();
      }
    }
    throw Refused("no size of " + axis + " was verified; run linattn-check on the folder");
  }

  void check(const Tensors& inputs) const {
    std::map<std::string, int64_t> sizes;
    for (const auto& spec : about.at("inputs")) {
      const auto input = spec.at("name").get<std::string>();
      if (inputs.count(input) == 0) throw Refused("the input " + input + " is missing");
      const auto& tensor = inputs.at(input);
      std::ostringstream shape;
      shape << input << " has shape " << tensor.sizes() << ", expected " << spec.at("axes");
      if (tensor.scalar_type() != type_of(spec.at("dtype"))) {
        throw Refused(input + " is " + torch::toString(tensor.scalar_type()) + ", expected " +
                      spec.at("dtype").get<std::string>());
      }
      if (tensor.dim() != static_cast<int64_t>(spec.at("axes").size())) throw Refused(shape.str());
      for (int64_t place = 0; place < tensor.dim(); ++place) {
        const auto& axis = spec.at("axes").at(place);
        const auto size = tensor.size(place);
        if (axis.is_string()) check_size(axis, size);
        const auto expected =
            axis.is_string() ? sizes.emplace(axis, size).first->second : axis.get<int64_t>();
        if (size != expected) throw Refused(shape.str());
      }
    }
  }

  void check_size(const std::string& axis, int64_t size) const {
    if (verified(axis, size)) return;
    const auto [low, high] = range(axis);
    std::ostringstream message;
    message << axis << " is " << size << ", but " << name() << " was verified from " << low
            << " to " << high << "; give another size, or build with "
            << (axis == "batch" ? "--batch " : "--dynamic ") << std::min(low, size) << ':'
            << std::max(high, size);
    throw Refused(message.str());
  }

  torch::jit::Module module_;
};

}  // namespace linattn
