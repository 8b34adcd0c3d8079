#include "server/admit/unread.h"

#include "server/wire/shorten.h"
#include "server/wire/violation_reason.h"

namespace plimsoll {

void AddUnread(const Violations& misread, v1::AdmitRequest* request) {
  for (const Violation& violation : misread) {
    v1::UnreadField& field = *request->add_unread();
    field.set_field(violation.field);
    field.set_value(violation.value);
    field.set_rule(violation.rule);
    field.set_reason(ToProto(violation.code));
    field.set_meant(violation.meant);
  }
}

Violations UnreadOf(const v1::AdmitRequest& request) {
  Violations misread;
  for (const v1::UnreadField& field : request.unread()) {
    misread.push_back({.field = Clean(field.field()),
                       .value = Clean(field.value()),
                       .rule = Clean(field.rule()),
                       .code = FromProto(field.reason()),
                       .others = {},
                       .meant = field.meant()});
  }
  return misread;
}

}  // namespace plimsoll
