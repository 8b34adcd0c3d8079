// Numbers that are none (NaN, infinite) in a Struct: a double holds them, protobuf's
// JSON has no words for them.
#ifndef PLIMSOLL_SERVER_WIRE_STRUCT_NUMBERS_H_
#define PLIMSOLL_SERVER_WIRE_STRUCT_NUMBERS_H_

#include <vector>

#include "google/protobuf/message.h"
#include "google/protobuf/struct.pb.h"

namespace plimsoll {

// Returns whether a number in the value is none.
bool HoldsNoNumber(const google::protobuf::Value& value);

// A Struct on its way past JSON.
struct TakenStruct {
  std::vector<const google::protobuf::FieldDescriptor*> path;  // from the message down
  google::protobuf::Struct object;
};

// Empties every Struct that holds such a number, of an object that is to be a
// message of this type, and returns what was in them.
std::vector<TakenStruct> TakeStructs(const google::protobuf::Descriptor& type,
                                     google::protobuf::Value* value);

// Puts them into the message that was made of the rest.
void PutStructs(std::vector<TakenStruct> structs, google::protobuf::Message* message);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_WIRE_STRUCT_NUMBERS_H_
