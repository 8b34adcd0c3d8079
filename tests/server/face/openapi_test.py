"""/openapi.json of a real server: valid by a validator of others, whole, and true: what it
shows as an example is answered, and what is answered is as it says.

    PLIMSOLL_SERVER_BINARY=build/server/plimsoll-server python3 -m unittest openapi_test
"""

import http.client
import json
import os
import pathlib
import re
import socket
import subprocess
import tempfile
import unittest

import jsonschema
import openapi_spec_validator

ROOT = pathlib.Path(__file__).resolve().parents[3]
PROTOS = [path.read_text() for path in sorted((ROOT / "proto/plimsoll/v1").glob("*.proto"))]


def strict(schema):
    """The same where nothing is allowed that is not described: a slip of the pen in an
    example is else another property."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {key: strict(value) for key, value in schema.items()}
    if schema.get("type") == "object" and schema.get("properties"):
        schema.setdefault("additionalProperties", False)
    return schema


class UnixConnection(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(self.host)


class OpenApiTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        # Over a unix socket every method may be called, reports too.
        cls.socket = f"{folder.name}/http"
        server = subprocess.Popen(
            [os.environ["PLIMSOLL_SERVER_BINARY"], "--listen", "none", "--log-level", "off",
             "--http-listen", f"unix:{cls.socket}", "--accept-reports"],
            stdout=subprocess.PIPE, text=True)
        cls.addClassCleanup(server.stdout.close)
        cls.addClassCleanup(server.wait)
        cls.addClassCleanup(server.terminate)
        server.stdout.readline()
        status, answer = cls.ask("GET", "/openapi.json")
        assert status == 200, answer
        cls.document = json.loads(answer)
        components = cls.document["components"]
        # A refusal's details have their type's name besides.
        details = set(re.findall(r"#/components/schemas/([\w.]+)",
                                 json.dumps(components["schemas"]["Error"])))
        cls.strict_components = {**components, "schemas": {
            name: one if name == "Error" or name in details else strict(one)
            for name, one in components["schemas"].items()}}
        cls.methods = {path: item["post"] for path, item in cls.document["paths"].items()
                       if "post" in item}

    @classmethod
    def ask(cls, method, path, body=None):
        connection = UnixConnection(cls.socket, timeout=60)
        connection.request(method, path, body)
        response = connection.getresponse()
        answer = response.read().decode()
        connection.close()
        return response.status, answer

    def check(self, value, schema):
        """The value is as a schema of the document says, and nothing besides."""
        whole = {"components": self.strict_components, **schema}
        jsonschema.Draft202012Validator(whole).validate(value)

    def resolve(self, response):
        if "$ref" not in response:
            return response
        name = response["$ref"].removeprefix("#/components/responses/")
        return self.document["components"]["responses"][name]

    def schema_of(self, method, status):
        responses = method["responses"]
        response = self.resolve(responses.get(str(status), responses["default"]))
        return response["content"]["application/json"]["schema"]

    def test_it_is_valid(self):
        openapi_spec_validator.validate(self.document)

    def test_it_has_every_method(self):
        rpcs = re.findall(r"^  rpc (\w+)\(", "\n".join(PROTOS), re.MULTILINE)
        self.assertGreater(len(rpcs), 5)
        self.assertEqual(sorted(method["operationId"] for method in self.methods.values()),
                         sorted(rpcs))
        for path, method in self.methods.items():
            name = method["operationId"]
            self.assertEqual(path, f"/v1:{name[0].lower()}{name[1:]}")

    def test_every_type_and_field_says_what_it_is(self):
        schemas = self.document["components"]["schemas"]
        own = {name: schema for name, schema in schemas.items()
               if not name.startswith("google.") and name != "Error"}
        self.assertGreater(len(own), 40)
        for name, schema in own.items():
            self.assertTrue(schema.get("description"), name)
            for field, property_ in schema.get("properties", {}).items():
                with self.subTest(name, field=field):
                    self.assertTrue(property_.get("description"))
                    snake = re.sub("[A-Z]", lambda letter: "_" + letter[0].lower(), field)
                    self.assertRegex("\n".join(PROTOS), rf"\b{snake} = \d+")

    def test_each_example_is_as_described_and_answered(self):
        examples = 0
        for path, method in self.methods.items():
            with self.subTest(path):
                body = method["requestBody"]["content"]["application/json"]
                example = body.get("example")
                self.check(example or {}, body["schema"])
                status, answer = self.ask("POST", path, json.dumps(example or {}))
                if example is not None:
                    self.assertEqual(status, 200, answer)
                    examples += 1
                self.check(json.loads(answer), self.schema_of(method, status))
        self.assertGreaterEqual(examples, 6)

    def test_each_page_answers(self):
        pages = [path for path, item in self.document["paths"].items() if "get" in item]
        self.assertEqual(pages, ["/metrics", "/healthz", "/readyz", "/openapi.json"])
        for path in pages:
            status, answer = self.ask("GET", path)
            self.assertEqual(status, 200)
            self.assertTrue(answer)

    def test_each_refusal_is_as_described(self):
        long = json.dumps({"job": {"model": {"name": "x" * (1 << 20)}}})
        for body, code in (('{"jobb": {}}', 400), ("[", 400), (long, 413)):
            for path, method in self.methods.items():
                with self.subTest(path, code=code):
                    status, answer = self.ask("POST", path, body)
                    self.assertEqual(status, code, answer)
                    refusal = json.loads(answer)
                    self.check(refusal, self.schema_of(method, status))
                    self.assertTrue(refusal["details"])

    def test_the_check_itself_notices(self):
        request = {"$ref": "#/components/schemas/EstimateMemoryRequest"}
        self.check({"job": {"training": {"sequenceLength": "1"}}}, request)
        for bad in ({"jobb": {}}, {"job": {"training": {"sequenceLength": "long"}}},
                    {"job": {"training": []}}, {"risk": "0.1"},
                    {"job": {"model": {"name": "gpt2", "hfConfig": {}}}}):
            with self.assertRaises(jsonschema.ValidationError, msg=bad):
                self.check(bad, request)
        error = self.document["components"]["schemas"]["Error"]
        with self.assertRaises(jsonschema.ValidationError):
            self.check({"code": 3, "details": [{"@type": "type.googleapis.com/a.B"}]}, error)


if __name__ == "__main__":
    unittest.main()
