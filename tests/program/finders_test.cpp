// --find-lr and --find-batch-size through the program.

#include "tern/tests/program/program.h"
#include "tern/tests/support/seed.h"

namespace tern::program {
namespace {

class FindersProgramTest : public ProgramTest {
 protected:
  static Words train(const std::string& out, const Words& more, uint64_t seed = fresh_seed()) {
    return Words("train vit --data digits --max-steps 2 --threads 1 --quiet --seed " + std::to_string(seed) +
                 " --out " + out) +
           more;
  }
};

/// The rate that is found trains as if it had been given; a run that goes on does not look for it again.
TEST_F(FindersProgramTest, FindLr) {
  constexpr uint64_t kSeed = 2;  // fixed: the loss must fall clearly at some rate
  const Words find = "--find-lr-steps 60 --find-lr";
  const Result report = succeeds(train("report", find, kSeed));
  EXPECT_EQ(listing("report"), "lr_finder.json lr_finder.svg");
  const Json found = json("report/lr_finder.json");
  EXPECT_EQ(found["lr"].size(), found["loss"].size());
  EXPECT_NEAR(found["lr"][0].get<double>(), 1e-7, 1e-12);
  EXPECT_TRUE(has(report.out, "learning rate") && has(report.out, " steps"));
  EXPECT_TRUE(has(read("report/lr_finder.svg"), "</svg>"));
  ASSERT_TRUE(found["suggestion"].is_number()) << report.out;

  const std::string rate = found["suggestion"].dump();
  const Words two = "--find-lr-steps 60 --find-lr use --checkpoint-every 1 --keep 9 --resume auto";
  succeeds(train("used", two, kSeed));
  succeeds(train("given", "--lr " + rate, kSeed));
  EXPECT_TRUE(weights("used") == weights("given"));
  EXPECT_EQ(json("used/run.json")["options"]["lr"], found["suggestion"]);
  EXPECT_EQ(json("used/run.json")["options"]["find_lr"], "");
  fs::remove(file("used/lr_finder.json"));
  succeeds(train("used", two, kSeed));
  EXPECT_FALSE(exists("used/lr_finder.json"));
  EXPECT_TRUE(weights("used") == weights("given"));
  succeeds({"resume", "used/checkpoints/step-00000001", "--quiet", "--threads", "1"});
  EXPECT_TRUE(weights("used") == weights("given"));

  // Too few steps for a suggestion: the rate stays that of the options.
  const Words given = "train vit --data digits --max-steps 2 --threads 1 --seed 5 --batch-size 400 --out ";
  const Result few = succeeds(given + "few --find-lr use");
  succeeds(given + "plain");
  const std::string kept = json("plain/run.json")["options"]["lr"].dump();
  for (const std::string& part : {std::string("needs 18 steps"), "; training goes on with --lr " + kept})
    EXPECT_TRUE(has(few.err, part)) << few.err;
  EXPECT_TRUE(json("few/lr_finder.json")["suggestion"].is_null());
  EXPECT_EQ(json("few/run.json")["options"]["lr"].dump(), kept);
  EXPECT_TRUE(weights("few") == weights("plain"));

  expect_error(tern("train vit --find-lr use --lr 1e-3"), 2, {"--find-lr use and --lr exclude each other"});
  expect_error(tern("train vit --find-lr --find-batch-size"), 2, {"exclude each other"});
  expect_error(tern("train vit --find-lr --resume used"), 2, {"--resume", "--out"});
}

TEST_F(FindersProgramTest, FindLrInSeveralProcesses) {
  if (!has_mpi()) GTEST_SKIP() << "mpi: there is no MPI";
  for (const std::string strategy : {"ddp", "zero1"}) {
    const auto launched = [](const std::string& out, const Words& more) {
      return Words("launch --quiet --threads 1 --nproc 2 --logs logs-" + out + " --") + train(out, more);
    };
    succeeds(launched(strategy, "--find-lr-steps 40 --find-lr --strategy " + strategy));
    const Json found = json(strategy + "/lr_finder.json");
    EXPECT_GT(found["loss"].size(), size_t{20});
    EXPECT_EQ(found, json("ddp/lr_finder.json"));
    if (found["suggestion"].is_null()) continue;
    succeeds(launched(strategy + "-used", "--find-lr-steps 40 --find-lr use --strategy " + strategy));
    EXPECT_EQ(json(strategy + "-used/run.json")["options"]["lr"], found["suggestion"]);
  }
  expect_error(
      tern(Words("launch --quiet --threads 1 --nproc 2 --logs logs-batch --") + train("batch", "--find-batch-size 4")),
      1, {"several processes"});
}

TEST_F(FindersProgramTest, FindBatchSize) {
  const Result all = succeeds(train("all", "--find-batch-size 20"));
  EXPECT_EQ(listing("all"), "batch_finder.json batch_finder.svg");
  const Json found = json("all/batch_finder.json");
  EXPECT_EQ(found["largest"], 20);
  EXPECT_EQ(found["trials"].size(), 6u);
  EXPECT_TRUE(found["too_large"].is_null());
  EXPECT_TRUE(has(all.out, "largest that fits: 20 images (no larger one was tried); fastest: "));

  const Result some = succeeds(train("some", "--find-batch-size --memory-limit 20MB"));
  const Json limited = json("some/batch_finder.json");
  EXPECT_TRUE(limited["too_large"] > limited["largest"] && limited["largest"] >= 8) << limited;
  for (const Json& trial : limited["trials"]) EXPECT_LE(trial["peak_memory_bytes"], 20'000'000);
  expect_error(tern(train("run", "--memory-limit 1MB")), 1, {"memory", "limit"});
  // Images that grow are as large as at the end of a run.
  const auto peak = [&](const std::string& out, const Words& more) {
    succeeds(train(out, more + "--find-batch-size 256"));
    return json(out + "/batch_finder.json")["trials"].back()["peak_memory_bytes"].get<double>();
  };
  EXPECT_GT(peak("growing", "--progressive-resize 4"), 0.9 * peak("full", {}));
  // Batch norms need more than one image.
  succeeds("train cnn --data digits --max-steps 2 --find-batch-size 4 --out norms --threads 1 --quiet");
  EXPECT_EQ(json("norms/batch_finder.json")["trials"][0]["size"], 2);
  EXPECT_EQ(json("norms/batch_finder.json")["trials"].size(), 2u);
  // Packed texts: tokens, from the longest row on.
  succeeds("train distilbert --data curve/data.csv --init curve --find-batch-size 200 --out texts --threads 1 --quiet");
  EXPECT_EQ(json("texts/batch_finder.json")["unit"], "tokens");
  EXPECT_EQ(json("texts/batch_finder.json")["largest"], 200);
}

}  // namespace
}  // namespace tern::program
