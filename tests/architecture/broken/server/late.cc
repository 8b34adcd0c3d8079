// Broken on purpose: what comes before a source's own header hides what it lacks.
#include <string>

#include "server/late.h"
