// The delegate "NpuflowBackend" of ExecuTorch: it hands programs and tensors to functions that the process
// registers. What runs a program is behind these functions: npuflow's executor, exported C, or a driver.

#include <cstddef>
#include <cstdint>
#include <vector>

#include <executorch/runtime/backend/interface.h>

using executorch::runtime::ArrayRef;
using executorch::runtime::Backend;
using executorch::runtime::BackendExecutionContext;
using executorch::runtime::BackendInitContext;
using executorch::runtime::BackendInterface;
using executorch::runtime::CompileSpec;
using executorch::runtime::DelegateHandle;
using executorch::runtime::Error;
using executorch::runtime::EValue;
using executorch::runtime::FreeableBuffer;
using executorch::runtime::Result;
using executorch::runtime::Span;

extern "C" {
// A handle above 0 for the bytes of an .npu, which are valid during the call alone; else 0.
typedef int64_t (*npuflow_open)(const void* program, size_t bytes);
// Inputs, then outputs, in the program's order; 0 where all went well.
typedef int32_t (*npuflow_run)(int64_t handle, size_t count, void* const* data, const size_t* bytes);
typedef void (*npuflow_close)(int64_t handle);
}

namespace {

struct Functions {
  npuflow_open open = nullptr;
  npuflow_run run = nullptr;
  npuflow_close close = nullptr;
} functions;

class NpuflowBackend final : public BackendInterface {
 public:
  bool is_available() const override {
    return functions.run != nullptr;
  }

  Result<DelegateHandle*> init(
      BackendInitContext& context,
      FreeableBuffer* processed,
      ArrayRef<CompileSpec>) const override {
    int64_t* handle = context.get_runtime_allocator()->allocateInstance<int64_t>();
    if (handle == nullptr) {
      return Error::MemoryAllocationFailed;
    }
    *handle = functions.open(processed->data(), processed->size());
    processed->Free();
    if (*handle <= 0) {
      return Error::DelegateInvalidCompatibility;
    }
    return handle;
  }

  Error execute(BackendExecutionContext&, DelegateHandle* handle, Span<EValue*> args) const override {
    std::vector<void*> data;
    std::vector<size_t> bytes;
    for (EValue* one : args) {
      if (!one->isTensor()) {
        return Error::InvalidArgument;
      }
      const auto& tensor = one->toTensor();
      const auto order = tensor.dim_order();
      for (size_t i = 0; i < order.size(); ++i) {
        if (order[i] != i) {              // channels last: programs have the order of the shape
          return Error::InvalidArgument;
        }
      }
      data.push_back(tensor.mutable_data_ptr());
      bytes.push_back(tensor.nbytes());
    }
    const int32_t failed = functions.run(*static_cast<int64_t*>(handle), data.size(), data.data(), bytes.data());
    return failed ? Error::Internal : Error::Ok;
  }

  void destroy(DelegateHandle* handle) const override {
    if (handle != nullptr) {
      functions.close(*static_cast<int64_t*>(handle));
    }
  }
};

NpuflowBackend backend;

}  // namespace

// Registers the delegate with these functions, or gives the delegate other ones. 0 where it is registered.
extern "C" int32_t npuflow_register(npuflow_open open, npuflow_run run, npuflow_close close) {
  functions = {open, run, close};
  if (executorch::runtime::get_backend_class("NpuflowBackend") != nullptr) {
    return 0;
  }
  return static_cast<int32_t>(executorch::runtime::register_backend(Backend{"NpuflowBackend", &backend}));
}
