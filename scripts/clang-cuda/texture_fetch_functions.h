// For scripts/lint.sh: clang 19 reads CUDA's sources, but includes this header, which CUDA 13 no longer has, and lacks
// some of nvcc's functions.
#pragma once

template <typename T>
__device__ T __ldcg(const T* address);
template <typename T>
__device__ T __ldcs(const T* address);
template <typename T>
__device__ void __stcs(T* address, T value);
