// Broken on purpose: the client may not go round the server.
#include "estimator/job/job.h"
