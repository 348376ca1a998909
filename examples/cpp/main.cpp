// Runs a TorchScript artifact with libtorch on the golden pack of its folder, inside the verified
// ranges, and says by how many roundings it departs from float64.
//
//     build/run FOLDER [ARTIFACT [CASE [OUTPUT]]]
//
// Exits 1 where a case departs by more than 4 roundings, and where something is refused. OUTPUT is
// a file for the raw numbers of the last case. An empty ARTIFACT or CASE is the default.

#include <cstdio>
#include <iostream>

#include "golden.hpp"

using linattn::Refused;

static int run(const std::vector<std::string>& asked) {
  const std::filesystem::path folder = asked.at(0);
  linattn::Artifact artifact(folder, asked.at(1));
  const linattn::GoldenPack pack(folder / artifact.about.at("reference").get<std::string>());
  double worst = 0;
  int count = 0;
  for (const auto& known : pack.cases) {
    const auto name = known.at("name").get<std::string>();
    const bool wanted = asked.at(2).empty()
                            ? artifact.verified("batch", known.at("batch")) &&
                                  artifact.verified("sequence", known.at("sequence"))
                            : name == asked.at(2);
    if (!wanted || !linattn::conclusive(known)) continue;
    const auto output = artifact(pack.tensors(known, "input"));
    const auto expected =
        pack.tensors(known, "output").at(artifact.about.at("outputs").at(0).at("name"));
    const auto found = linattn::multiple(output, expected, known);
    if (found > linattn::kMost) std::printf("%s: %.3fx\n", name.c_str(), found);
    worst = std::max(worst, found);
    ++count;
    if (!asked.at(3).empty()) {
      const auto dense = output.contiguous();
      std::ofstream(asked.at(3), std::ios::binary)
          .write(static_cast<const char*>(dense.data_ptr()),
                 static_cast<std::streamsize>(dense.nbytes()));
    }
  }
  if (count == 0) {
    throw Refused("the golden pack has no case " + asked.at(2) +
                  " in the verified ranges to judge");
  }
  std::printf("%s: %d cases, at most %.3fx the rounding of an input, %gx allowed\n",
              artifact.name().c_str(), count, worst, linattn::kMost);
  return worst <= linattn::kMost ? 0 : 1;
}

int main(int argc, char** argv) {
  std::vector<std::string> asked(argv + 1, argv + argc);
  if (asked.empty() || asked.size() > 4) {
    std::cerr << "usage: run FOLDER [ARTIFACT [CASE [OUTPUT]]]\n";
    return 2;
  }
  asked.resize(4);
  try {
    return run(asked);
  } catch (const Refused& error) {
    std::cerr << "refused: " << error.what() << '\n';
    return 1;
  }
}
