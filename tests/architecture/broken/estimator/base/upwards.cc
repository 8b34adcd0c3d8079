#include "estimator/job/job.h"
