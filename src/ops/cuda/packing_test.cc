#include "ops/cuda/packing.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace hadal::cuda {
namespace {

Weight fp8(int n, int k) { return {WeightFormat::fp8_block32, n, k}; }

TEST(Packing, FollowsTheShape) {
  const auto packing = [](const Weight& w, Numerics numerics) { return packing_of(numerics, false, w); };
  EXPECT_EQ(packing(fp8(8192, 4096), Numerics::bf16), Packing::bits16) << "wo_a of the release";
  EXPECT_EQ(packing(fp8(8192, 4096), Numerics::official), Packing::bits16);
  EXPECT_EQ(packing(fp8(8192, 4096), Numerics::fp8), Packing::bits8);
  EXPECT_EQ(packing(fp8(256, 64), Numerics::bf16), Packing::bits16);
  EXPECT_EQ(packing(fp8(256, 64), Numerics::fp8), Packing::bits16) << "k is no multiple of 128";
  EXPECT_EQ(packing(fp8(128, 128), Numerics::bf16), Packing::none) << "n is no multiple of 256";
  EXPECT_EQ(packing(fp8(128, 128), Numerics::fp8), Packing::bits8);
  EXPECT_EQ(packing(fp8(256, 96), Numerics::bf16), Packing::none);
  EXPECT_EQ(packing({WeightFormat::bf16, 256, 128}, Numerics::bf16), Packing::none);
  EXPECT_EQ(packing({WeightFormat::mxfp4, 256, 128}, Numerics::fp8), Packing::none);
  EXPECT_EQ(packing_of(Numerics::fp8, true, fp8(8192, 4096)), Packing::none);
}

TEST(Packing, GroupsThatFit) {
  for (const Packing packing : {Packing::none, Packing::bits16, Packing::bits8}) {
    EXPECT_NO_THROW(check_groups(packing, "wo_a", fp8(8192, 4096), 8)) << "the release";
    EXPECT_NO_THROW(check_groups(packing, "wo_a", fp8(2048, 1024), 4)) << "v41-mini";
    EXPECT_NO_THROW(check_groups(packing, "wo_a", fp8(256, 64), 4)) << "one tile a group";
    EXPECT_NO_THROW(check_groups(packing, "wo_a", fp8(256, 64), 1));
  }
  // What lies as published is multiplied by group, whatever its size.
  EXPECT_NO_THROW(check_groups(Packing::none, "wo_a", fp8(768, 64), 8));
  EXPECT_NO_THROW(check_groups(Packing::none, "wo_a", fp8(128, 64), 4));
}

TEST(Packing, RefusesGroupsThatDoNot) {
  for (const auto& [groups, outputs] : {std::pair{8, 96}, std::pair{8, 32}, std::pair{2, 160}})
    for (const Packing packing : {Packing::bits16, Packing::bits8}) {
      try {
        check_groups(packing, "layers.3.attn.wo_a", fp8(groups * outputs, 128), groups);
        ADD_FAILURE() << groups << " groups of " << outputs << " were taken";
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::unsupported);
        const std::string text = error.what();
        for (const std::string& part :
             {std::string("layers.3.attn.wo_a: "), fmt::format("{} groups", groups), fmt::format("is {};", outputs),
              std::string("a multiple of 64"), std::string("--device cuda:portable"), std::string("--device cpu")})
          EXPECT_NE(text.find(part), std::string::npos) << part << ": " << text;
      }
    }
}

}  // namespace
}  // namespace hadal::cuda
