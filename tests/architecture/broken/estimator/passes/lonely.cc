// Broken on purpose: a pass without a row or a test.
// It asks who does it.
bool IsDdp(const Job& job) { return job.profile->framework == Framework::kDdp; }
