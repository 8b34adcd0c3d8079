// Broken on purpose: the server may not look at its client, and only its
// converter may see the estimator's types and generated code at once.
#include "client/show/table.h"
#include "estimator/job/job.h"
#include "plimsoll/v1/job.pb.h"
