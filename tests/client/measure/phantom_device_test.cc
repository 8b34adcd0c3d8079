// The GPU that the phantom stands in for: as the environment describes it, and with the limits that
// NVIDIA publishes for its compute capability.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "client/measure/phantom/device.h"

namespace plimsoll {
namespace {

// Source: CUDA C++ Programming Guide 13, "Technical Specifications per Compute Capability": the
// most threads and blocks of a multiprocessor, its shared memory, and the most of it that a block
// may opt in to, in KiB.
struct Published {
  int major, minor;
  int threads, blocks, shared_kib, optin_kib;
};
constexpr Published kPublished[] = {
    {7, 0, 2048, 32, 96, 96},    {7, 5, 1024, 16, 64, 64},   {8, 0, 2048, 32, 164, 163},
    {8, 6, 1536, 16, 100, 99},   {8, 9, 1536, 24, 100, 99},  {9, 0, 2048, 32, 228, 227},
    {10, 0, 2048, 32, 228, 227}, {12, 0, 1536, 24, 100, 99},
};

Device DeviceOf(int major, int minor) {
  return {.name = "A GPU",
          .total_bytes = size_t{80} << 30,
          .context_bytes = size_t{1} << 29,
          .major = major,
          .minor = minor,
          .multiprocessor_count = 132};
}

TEST(PhantomDeviceTest, HasThePublishedLimitsOfItsCapability) {
  for (const auto& [major, minor, threads, blocks, shared_kib, optin_kib] : kPublished) {
    SCOPED_TRACE(std::to_string(major) + "." + std::to_string(minor));
    const Device device = DeviceOf(major, minor);
    EXPECT_EQ(AttributeOf(device, kComputeCapabilityMajor), major);
    EXPECT_EQ(AttributeOf(device, kComputeCapabilityMinor), minor);
    EXPECT_EQ(AttributeOf(device, kMaxThreadsPerMultiprocessor), threads);
    EXPECT_EQ(AttributeOf(device, kMaxBlocksPerMultiprocessor), blocks);
    EXPECT_EQ(AttributeOf(device, kMaxSharedMemoryPerMultiprocessor), shared_kib * 1024);
    EXPECT_EQ(AttributeOf(device, kMaxSharedMemoryPerBlockOptin), optin_kib * 1024);
    EXPECT_EQ(AttributeOf(device, kReservedSharedMemoryPerBlock), (shared_kib - optin_kib) * 1024);
  }
}

// A capability between two of the table is taken for the one before it.
TEST(PhantomDeviceTest, ALaterCapabilityHasTheLimitsOfTheOneBefore) {
  const std::pair<Device, Device> pairs[] = {{DeviceOf(8, 7), DeviceOf(8, 6)},
                                             {DeviceOf(12, 1), DeviceOf(12, 0)},
                                             {DeviceOf(20, 0), DeviceOf(12, 0)},
                                             {DeviceOf(7, 2), DeviceOf(7, 0)}};
  for (const auto& [later, before] : pairs) {
    for (const DeviceAttribute attribute :
         {kMaxThreadsPerMultiprocessor, kMaxBlocksPerMultiprocessor,
          kMaxSharedMemoryPerMultiprocessor}) {
      EXPECT_EQ(AttributeOf(later, attribute), AttributeOf(before, attribute)) << attribute;
    }
  }
}

// What is in the properties is in the attributes, by the names that CUDA gives both.
TEST(PhantomDeviceTest, PropertiesAndAttributesAreTheSame) {
  for (const Published& row : kPublished) {
    const Device device = DeviceOf(row.major, row.minor);
    const DeviceProperties of = PropertiesOf(device);
    const auto number = [](size_t bytes) { return static_cast<int>(bytes); };
    const std::map<int, int> properties = {
        {kMaxThreadsPerBlock, of.max_threads_per_block},
        {kMaxBlockDimX, of.max_threads_dim[0]},
        {kMaxBlockDimY, of.max_threads_dim[1]},
        {kMaxBlockDimZ, of.max_threads_dim[2]},
        {kMaxGridDimX, of.max_grid_size[0]},
        {kMaxGridDimY, of.max_grid_size[1]},
        {kMaxGridDimZ, of.max_grid_size[2]},
        {kMaxSharedMemoryPerBlock, number(of.shared_memory_per_block)},
        {kTotalConstantMemory, number(of.total_constant_memory)},
        {kWarpSize, of.warp_size},
        {kMaxRegistersPerBlock, of.registers_per_block},
        {kMultiprocessorCount, of.multiprocessor_count},
        {kMaxThreadsPerMultiprocessor, of.max_threads_per_multiprocessor},
        {kUnifiedAddressing, of.unified_addressing},
        {kComputeCapabilityMajor, of.major},
        {kComputeCapabilityMinor, of.minor},
        {kMaxSharedMemoryPerMultiprocessor, number(of.shared_memory_per_multiprocessor)},
        {kMaxRegistersPerMultiprocessor, of.registers_per_multiprocessor},
        {kCooperativeLaunch, of.cooperative_launch},
        {kMaxSharedMemoryPerBlockOptin, number(of.shared_memory_per_block_optin)},
        {kMaxBlocksPerMultiprocessor, of.max_blocks_per_multiprocessor},
        {kReservedSharedMemoryPerBlock, number(of.reserved_shared_memory_per_block)},
    };
    for (const auto& [attribute, property] : properties) {
      EXPECT_EQ(AttributeOf(device, attribute), property) << attribute << " of " << row.major;
    }
    EXPECT_EQ(of.total_global_memory, device.total_bytes) << "all of it, with the context's";
  }
}

TEST(PhantomDeviceTest, AnUnknownAttributeIsZero) {
  for (const int attribute : {-1, 0, 11, int{kClockRate}, 1000}) {
    EXPECT_EQ(AttributeOf(DeviceOf(9, 0), attribute), 0) << attribute;
  }
}

// A name that is longer than CUDA has room for is cut, and still ends.
TEST(PhantomDeviceTest, ALongNameIsCut) {
  Device device = DeviceOf(9, 0);
  device.name.assign(300, 'x');
  EXPECT_EQ(std::string(PropertiesOf(device).name), std::string(255, 'x'));
}

// The environment is read once a process, so that each case has a process of its own.
const std::map<std::string, std::string>& Described() {
  static const auto* const kDescribed =
      new std::map<std::string, std::string>{{"PLIMSOLL_PHANTOM_NAME", "NVIDIA H100 80GB HBM3"},
                                             {"PLIMSOLL_PHANTOM_BYTES", "85017493504"},
                                             {"PLIMSOLL_PHANTOM_CONTEXT_BYTES", "805306368"},
                                             {"PLIMSOLL_PHANTOM_CAPABILITY", "9.0"},
                                             {"PLIMSOLL_PHANTOM_MULTIPROCESSORS", "132"}};
  return *kDescribed;
}

// Prints the device of an environment that is Described but for one variable, and exits with 0.
void PrintDevice(const std::string& changed, const char* value) {
  for (const auto& [name, text] : Described()) setenv(name.c_str(), text.c_str(), 1);
  if (value != nullptr) {
    setenv(changed.c_str(), value, 1);
  } else {
    unsetenv(changed.c_str());
  }
  const Device& device = TheDevice();
  std::fprintf(stderr, "%s, %zu and %zu, %d.%d, %d\n", device.name.c_str(), device.total_bytes,
               device.context_bytes, device.major, device.minor, device.multiprocessor_count);
  std::_Exit(0);
}

TEST(PhantomDeviceEnvironmentTest, IsAsTheEnvironmentSays) {
  const struct {
    const char* name;
    const char* value;
    const char* printed;
  } kCases[] = {
      {"PLIMSOLL_PHANTOM_NAME", "Tesla T4", "Tesla T4, 85017493504 and 805306368, 9.0, 132"},
      {"PLIMSOLL_PHANTOM_CAPABILITY", "12.1", "NVIDIA H100.*, 12.1, 132"},
      {"PLIMSOLL_PHANTOM_CAPABILITY", "10.0", "NVIDIA H100.*, 10.0, 132"},
      {"PLIMSOLL_PHANTOM_CAPABILITY", "8", "NVIDIA H100.*, 8.0, 132"},
      {"PLIMSOLL_PHANTOM_BYTES", "309237645312", "309237645312 and 805306368"},
      {"PLIMSOLL_PHANTOM_CONTEXT_BYTES", "0", "85017493504 and 0, "},
  };
  for (const auto& [name, value, printed] : kCases) {
    EXPECT_EXIT(PrintDevice(name, value), testing::ExitedWithCode(0), printed) << name;
  }
}

TEST(PhantomDeviceEnvironmentTest, SaysWhatIsNotSet) {
  for (const auto& [name, text] : Described()) {
    for (const char* const nothing : {static_cast<const char*>(nullptr), ""}) {
      EXPECT_EXIT(PrintDevice(name, nothing), testing::ExitedWithCode(2),
                  "^plimsoll measure: " + name + ": not set; the phantom does not know its GPU\n$");
    }
  }
}

}  // namespace
}  // namespace plimsoll
