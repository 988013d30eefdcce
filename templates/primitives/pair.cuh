// Two fused multiply-adds in one instruction: sums of neighbouring columns, both times the same factor.
__device__ __forceinline__ void multiply_add_pair(float* sums, float factor, const float* others)
{
    asm("{\n"
        ".reg .b64 s, f, o;\n"
        "mov.b64 s, { %0, %1 };\n"
        "mov.b64 f, { %2, %2 };\n"
        "mov.b64 o, { %3, %4 };\n"
        "fma.rn.f32x2 s, f, o, s;\n"
        "mov.b64 { %0, %1 }, s;\n"
        "}" : "+f"(sums[0]), "+f"(sums[1]) : "f"(factor), "f"(others[0]), "f"(others[1]));
}
