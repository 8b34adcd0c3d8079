// A reason that no page explains.
inline constexpr ViolationCodeRow kViolationCodes[] = {
    {ViolationCode::kLost, "LOST", "nobody knows"},
};
