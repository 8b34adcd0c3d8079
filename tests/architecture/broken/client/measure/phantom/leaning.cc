// A library that torch loads has no Abseil.
#include "absl/strings/str_cat.h"
