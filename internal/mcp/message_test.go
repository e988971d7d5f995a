package mcp

import "testing"

// A message that two readers could take for different ones is refused; what is wrong otherwise is
// left to the SDK (SE-03).
func TestCheckMessage(t *testing.T) {
	for body, ok := range map[string]bool{
		`{"id":1,"params":{"name":"a","arguments":{"x":1,"x":2},"_meta":{"p":{"q":1,"q":2}}}}`: true,
		`{"id":1,"id":2}`:                        false,
		`{"id":1,"\u0069d":2}`:                   false,
		`{"method":"a","params":{},"params":{}}`: false,
		`{"params":{"name":"a","name":"b"}}`:     false,
		`{"params":{"_meta":{"v":1,"v":2}}}`:     false,
		`{"result":{"a":1,"a":2}}`:               true,
		`{"id":1,"ID":2}`:                        true,
		`[{"id":1},{"id":2}]`:                    true,
		`[{"id":1},{"id":2,"id":2}]`:             false,
		`{"id":1}{"id":2}`:                       false,
		`{"id":1} x`:                             false,
		`{"id":1} ` + "\n":                       true,
		``:                                       true,
		`null`:                                   true,
		`{"id":1`:                                true,
		`{"id"}`:                                 true,
		`[`:                                      true,
		`[1,{"a":{"b":[]}},"\ud800",{"params":5}]`: true,
	} {
		if err := checkMessage([]byte(body)); (err == nil) != ok {
			t.Errorf("%s: %v", body, err)
		}
	}
}
