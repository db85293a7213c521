// make_seeds FOLDER: writes the fuzz seeds that Tern itself can produce to FOLDER/<target>/<name>. Other seeds are
// files of other tools in tests/golden (listed in run.sh).

#include <cstdio>
// Not sorted: requires <cstdio>.
#include <jpeglib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "tern/core/io/npy.h"
#include "tern/core/io/safetensors.h"
#include "tern/data/files/files.h"
#include "tern/data/images/image.h"
#include "tern/dist/store/tcp_protocol.h"

namespace tern::fuzz {
namespace {

std::filesystem::path folder;

void write(const std::string& target, const std::string& name, const std::string& bytes) {
  std::filesystem::create_directories(folder / target);
  std::ofstream file(folder / target / name, std::ios::binary);
  TERN_CHECK(file << bytes, (folder / target / name).string(), " cannot be written");
}

data::Image image_of(int64_t channels) {
  data::Image image(6, 9, channels);
  for (size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = static_cast<uint8_t>(i * 7);
  return image;
}

/// `tag274`: the EXIF orientation.
std::string tiff(bool big_endian, int tag274) {
  const auto number = [&](unsigned value, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> 8 * (big_endian ? bytes - 1 - i : i));
    return text;
  };
  return (big_endian ? "MM" : "II") + number(42, 2) + number(8, 4) + number(1, 2) + number(274, 2) + number(3, 2) +
         number(1, 4) + number(static_cast<unsigned>(tag274), 2) + number(0, 2) + number(0, 4);
}

std::string jpeg(int channels, bool progressive, int restart, const std::string& exif) {
  jpeg_compress_struct c{};
  jpeg_error_mgr errors{};
  c.err = jpeg_std_error(&errors);
  jpeg_create_compress(&c);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&c, &memory, &size);
  data::Image image = image_of(channels);
  c.image_width = 9;
  c.image_height = 6;
  c.input_components = channels;
  c.in_color_space = channels == 1 ? JCS_GRAYSCALE : channels == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&c);
  c.restart_interval = static_cast<unsigned>(restart);
  if (progressive) jpeg_simple_progression(&c);
  jpeg_start_compress(&c, TRUE);
  if (!exif.empty()) {
    const std::string marker = std::string("Exif\0\0", 6) + exif;
    jpeg_write_marker(&c, JPEG_APP0 + 1, reinterpret_cast<const JOCTET*>(marker.data()),
                      static_cast<unsigned>(marker.size()));
  }
  for (int64_t y = 0; y < image.height; ++y) {
    JSAMPROW row = image.row(y);
    jpeg_write_scanlines(&c, &row, 1);
  }
  jpeg_finish_compress(&c);
  const std::string bytes(reinterpret_cast<const char*>(memory), size);
  jpeg_destroy_compress(&c);
  std::free(memory);
  return bytes;
}

void images() {
  for (const int channels : {1, 2, 3, 4})
    write("png", "channels-" + std::to_string(channels), data::encode_png(image_of(channels)));
  for (const int channels : {1, 3, 4})
    write("jpeg", "channels-" + std::to_string(channels), jpeg(channels, false, 0, ""));
  write("jpeg", "progressive", jpeg(3, true, 0, ""));
  write("jpeg", "restarts", jpeg(3, false, 1, ""));
  write("jpeg", "turned", jpeg(3, false, 0, tiff(true, 6)));
  for (const bool big_endian : {false, true})
    write("exif", big_endian ? "big-endian" : "little-endian", tiff(big_endian, big_endian ? 8 : 3));
}

void weights() {
  const std::string path = (folder / "temporary.safetensors").string();
  save_safetensors({{"a", ones({2, 3})}, {"b", ones({4}, {.dtype = bfloat16})}, {"c", ones({0, 5}, {.dtype = int64})}},
                   path, {{"format", "pt"}});
  std::string bytes = "\1";
  data::read_file(path, bytes);
  write("safetensors", "three", bytes);
  std::filesystem::remove(path);
  const std::string array = (folder / "temporary.npy").string();
  for (const Tensor& x : {ones({2, 3}), ones({3}, {.dtype = bfloat16}), full({}, 1, {.dtype = int64})}) {
    save_npy(x, array);
    bytes.clear();
    data::read_file(array, bytes);
    write("npy", name_of(x.dtype()), bytes);
  }
  std::filesystem::remove(array);
  write(
      "index", "two",
      R"({"metadata": {"total_size": 36}, "weight_map": {"a": "one.safetensors", "b": "one.safetensors", "c": "two.safetensors"}})");
  write("index", "missing", R"({"weight_map": {"a": "three.safetensors"}})");
}

void texts() {
  write("texts", "csv", "0label,text\n1,\"a \"\"quoted\"\"\nline\"\r\n0,plain\n");
  write("texts", "tsv", "1review\tsentiment\ngood film\tpositive\nbad\tneg\n");
  write("texts", "jsonl",
        "2{\"text\": \"gr\\u00fc\\ud83d\\ude00n\", \"label\": \"pos\"}\n\n{\"label\": 0, \"sentence\": \"x\"}\n");
  write("texts", "jsonl-number", "2{\"text\": \"a\", \"label\": 1e3}\n");
  write(
      "vocab", "small",
      "7[PAD]\n[UNK]\n[CLS]\n[SEP]\nun\n##aff\n##able\ntheir\n,\n=====\nunaffable, Their [SEP] \xe4\xb8\xad\xcc\x81\n");
  const std::string tokens = R"({"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "a": 4, "##b": 5})";
  write(
      "tokenizer", "model",
      R"({"added_tokens": [{"id": 1, "content": "[UNK]", "special": true}], "normalizer": {"type": "BertNormalizer", "lowercase": true, "strip_accents": null, "handle_chinese_chars": true}, "pre_tokenizer": {"type": "BertPreTokenizer"}, "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": )" +
          tokens + "}}\n=====\n{\"do_lower_case\": false, \"strip_accents\": null, \"tokenize_chinese_chars\": true}");
  const std::string added =
      R"([{"id": 9, "content": "<x>", "single_word": false, "lstrip": true, "rstrip": false, "normalized": true, "special": true}])";
  write(
      "tokenizer_json", "bpe",
      R"({"version": "1.0", "truncation": {"max_length": 6, "strategy": "LongestFirst", "stride": 1, "direction": "Left"}, "padding": {"strategy": {"Fixed": 8}, "direction": "Right", "pad_id": 0}, "added_tokens": )" +
          added +
          R"(, "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Replace", "pattern": {"Regex": "[a-c ]{2,}"}, "content": "x"}]}, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": true}, {"type": "ByteLevel", "add_prefix_space": true, "use_regex": true}]}, "post_processor": {"type": "RobertaProcessing", "sep": ["<x>", 9], "cls": ["a", 1]}, "model": {"type": "BPE", "unk_token": "u", "byte_fallback": true, "vocab": {"u": 0, "a": 1, "b": 2, "\u0120": 3, "ab": 4, "\u0120ab": 5, "x": 6, "1": 7, "<0x41>": 8}, "merges": [["a", "b"], "\u0120 ab"]}})" +
          "\n=====\nab x12 <x> \xc3\xa9 abab A");
  write(
      "tokenizer_json", "unigram",
      R"({"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Strip", "strip_left": true, "strip_right": true}]}, "pre_tokenizer": {"type": "Metaspace", "replacement": "_", "prepend_scheme": "first", "split": true}, "post_processor": {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}], "special_tokens": {"</s>": {"id": "</s>", "ids": [1], "tokens": ["</s>"]}}}, "model": {"type": "Unigram", "unk_id": 0, "vocab": [["u", 0], ["</s>", 0], ["_", -2.5], ["a", -1.5], ["_ab", -3e0]]}})"
      "\n=====\n ab \xcc\x81z");
  std::string long_word;
  for (int i = 0; i < 7; ++i) long_word += "abcaab bc \xc3\xa9 z ";
  write(
      "tokenizer_json", "bpe-long",
      R"({"normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "_"}, "model": {"type": "BPE", "unk_token": "u", "byte_fallback": true, "fuse_unk": true, "vocab": {"u": 0, "a": 1, "b": 2, "c": 3, "ab": 4, "abc": 5, "bc": 6, "aab": 7, "<0xC3>": 8, "<0xA9>": 9, "_": 10, "_a": 11, "c_a": 12}, "merges": [["b", "c"], ["a", "b"], ["ab", "c"], ["a", "bc"], ["a", "ab"], ["_", "a"], ["c", "_a"]]}})"
      "\n=====\n" +
          long_word);
  write(
      "tokenizer_json", "pair",
      R"({"pre_tokenizer": {"type": "UnicodeScripts"}, "post_processor": {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}], "pair": [{"SpecialToken": {"id": "s", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "s", "type_id": 1}}, {"Sequence": {"id": "B", "type_id": 1}}], "special_tokens": {"s": {"id": "s", "ids": [0], "tokens": ["s"]}}}, "model": {"type": "WordLevel", "unk_token": "u", "vocab": {"s": 0, "u": 1, "ab": 2, "\u304b\u6f22": 3}}})"
      "\n=====\nab \xe3\x81\x8b\xe6\xbc\xa2 ab zab");
  // The payload of two rows: offsets, ids.
  std::string payload;
  for (const int64_t offset : {0, 5, 8}) payload.append(reinterpret_cast<const char*>(&offset), sizeof offset);
  for (const int32_t id : {1, 111, 110, 101, 2, 1, 97, 2})
    payload.append(reinterpret_cast<const char*>(&id), sizeof id);
  write("token_cache", "right", "\1" + payload);
  std::string types;
  for (const int32_t type : {0, 0, 0, 1, 1, 0, 1, 1}) types.append(reinterpret_cast<const char*>(&type), sizeof type);
  write("token_cache", "pairs", "\3" + payload + types);
  std::string far = payload;
  const int64_t lowest = INT64_MIN;
  std::memcpy(far.data() + 8, &lowest, sizeof lowest);
  write("token_cache", "far-apart", "\1" + far);
  write("token_cache", "raw", std::string("\0TERNTOK1", 9) + std::string(128, 'a') + payload);
}

void tables() {
  const std::string header("\0\0\x08\x02\0\0\0\x02\0\0\0\x03", 12);
  write("idx", "two-by-three", header + "abcdef");
  write("idx", "three-dimensions", std::string("\0\0\x08\x03\0\0\0\x01\0\0\0\x01\0\0\0\x02", 16) + "ab");
  write("tables", "csv", "\5a,y,b\n1,-2.5e-3,.5\n+7,1e-400,0\n");
  write("tables", "non-finite", "\7a,y\nnan,-inf\n,1e39\n");
  write("tables", "labels", "\1labels,text\nred; big,one\n,\"two\nlines\"\n");
  write("tables", "columns", "\x08y\tsentence\n0\tone\n1\ttwo\n");
  write("tables", "conll", "\2-DOCSTART- -X- O O\n\nEU NNP I-NP B-ORG\nrejects VBZ I-VP O\n\n. . O O\n");
}

void configurations() {
  write("config", "run", R"({"options": {"lr": 0.001, "data": "sentences"}, "version": "0.1.0"})");
  write(
      "config", "preprocessor",
      R"({"image_processor_type": "ViTImageProcessor", "do_resize": true, "size": {"height": 32, "width": 32}, "do_rescale": true, "rescale_factor": 0.00392156862745098, "do_normalize": true, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "resample": 2})");
  write(
      "state", "state",
      R"({"format": "tern-checkpoint", "version": 2, "step": 10, "epoch": 1, "step_in_epoch": 3, "validated": false, "items": 40, "seconds": 1.5, "step_seconds": null, "best_epoch": 1, "best": {"loss": 0.5, "accuracy": 0.75, "examples": 100}, "generator": {"seed": 18446744073709551615, "offset": 7}, "notes": "{}"})");
  write(
      "state", "checksums",
      R"({"checksums.json": {"bytes": 2, "sha256": "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}})");
}

/// Steps for store_fuzz.cpp.
void store() {
  using dist::tcp::Request;
  using dist::tcp::Writer;
  const auto step = [](int kind, int which, const std::string& bytes) {
    return std::string{static_cast<char>(which << 3 | kind), static_cast<char>(bytes.size())} + bytes;
  };
  const std::string set = Writer().number(Request::kSet).string("key").string("value").text();
  const std::string add = Writer().number(Request::kAdd).string("n").number(int64_t{3}).text();
  const std::string wait =
      Writer().number(Request::kWait).number(int64_t{100}).number(uint32_t{2}).string("key").string("x").text();
  const std::string erase = Writer().number(Request::kErase).string("key").text();
  std::string session = step(1, 1, "") + step(1, 2, "") + step(3, 0, set) + step(5, 0, "") + step(3, 1, wait);
  session += step(3, 0, add) + step(5, 0, "") + step(6, 9, "") + step(5, 1, "") + step(4, 0, "key") + step(5, 0, "");
  session += step(3, 0, erase) + step(5, 0, "") + step(3, 1, Writer().number(Request::kGone).text()) + step(5, 1, "");
  session += step(3, 1, Writer().number(Request::kFinish).text()) + step(5, 1, "") + step(7, 1, "") + step(7, 31, "");
  write("store", "session", session);
  write("store", "strangers",
        step(0, 0, "") + step(2, 0, "GET / HTTP/1.1\r\n\r\n") + step(0, 0, "") +
            step(3, 0, Writer().string(dist::tcp::kMagic).string("job").text()) + step(6, 20, ""));
}

}  // namespace
}  // namespace tern::fuzz

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "make_seeds FOLDER\n";
    return 2;
  }
  using namespace tern::fuzz;
  folder = argv[1];
  images();
  weights();
  texts();
  tables();
  configurations();
  store();
  return 0;
}
