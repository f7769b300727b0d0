/* A driver library that does nothing, for hosts without one.
 *
 * With it loaded as libcuda.so.1, the real cuDNN validates graphs, lists engines, compiles plans and serializes them.
 * What cuDNN calls for that succeeds and makes nothing; everything else is "not supported". Plans that were built over
 * it must never be executed: some of them hang a GPU.
 */

typedef int CUresult;
enum { CUDA_SUCCESS = 0, CUDA_ERROR_NOT_SUPPORTED = 801, CUDA_VERSION = 13000 };

static void *const SOMETHING = (void *)1;

CUresult cuDriverGetVersion(int *version) {
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}

CUresult cuLibraryLoadData(void **library, const void *code, void *jit_options, void *jit_values, unsigned jit_count,
                           void *options, void *values, unsigned count) {
    *library = SOMETHING;
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(void **kernel, void *library, const char *name) {
    *kernel = SOMETHING;
    return CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(void **function, void *kernel) {
    *function = SOMETHING;
    return CUDA_SUCCESS;
}

CUresult cuKernelSetAttribute(int attribute, int value, void *kernel, int device) { return CUDA_SUCCESS; }

CUresult cuLibraryUnload(void *library) { return CUDA_SUCCESS; }

CUresult cuModuleLoadData(void **module, const void *image) {
    *module = SOMETHING;
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(void **function, void *module, const char *name) {
    *function = SOMETHING;
    return CUDA_SUCCESS;
}

CUresult cuModuleUnload(void *module) { return CUDA_SUCCESS; }

#define NOT_SUPPORTED(name) \
    CUresult name(void) { return CUDA_ERROR_NOT_SUPPORTED; }

NOT_SUPPORTED(cuCtxGetCurrent)
NOT_SUPPORTED(cuCtxGetLimit)
NOT_SUPPORTED(cuCtxPopCurrent)
NOT_SUPPORTED(cuCtxPushCurrent)
NOT_SUPPORTED(cuDeviceGet)
NOT_SUPPORTED(cuDeviceGetCount)
NOT_SUPPORTED(cuGetErrorName)
NOT_SUPPORTED(cuGetErrorString)
NOT_SUPPORTED(cuKernelGetAttribute)
NOT_SUPPORTED(cuLaunchCooperativeKernel)
NOT_SUPPORTED(cuLaunchKernel)
NOT_SUPPORTED(cuLaunchKernelEx)
NOT_SUPPORTED(cuLibraryLoadFromFile)
NOT_SUPPORTED(cuLinkAddData)
NOT_SUPPORTED(cuLinkComplete)
NOT_SUPPORTED(cuLinkCreate)
NOT_SUPPORTED(cuLinkDestroy)
NOT_SUPPORTED(cuOccupancyMaxPotentialClusterSize)
NOT_SUPPORTED(cuStreamGetCtx)
NOT_SUPPORTED(cuTensorMapEncodeIm2col)
NOT_SUPPORTED(cuTensorMapEncodeTiled)
