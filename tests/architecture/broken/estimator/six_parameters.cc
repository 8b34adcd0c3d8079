// Breaks a rule of .clang-tidy.
namespace plimsoll {

int SixParameters(int a, int b, int c, int d, int e, int f) { return a + b + c + d + e + f; }

}  // namespace plimsoll
