package jsonc_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"reflect"
	"testing"
	"unicode/utf8"

	"github.com/dray-dev/dray/internal/devcontainer/internal/reference"
	"github.com/dray-dev/dray/internal/devcontainer/jsonc"
)

// Parse agrees with the reference's parser on odd documents, and on thousands of broken ones that
// are made from them (EX-07).
func TestParseAgreesWithReference(t *testing.T) {
	docs := make([][]byte, 0, 20000)
	for _, odd := range oddDocuments {
		docs = append(docs, []byte(odd.text))
	}
	docs = append(docs, mutants(cap(docs)-len(docs))...)
	answers := askReference(t, docs)
	accepted, failures := 0, 0
	for i, doc := range docs {
		if answers[i].OK {
			accepted++
		}
		if message := compare(doc, answers[i]); message != "" {
			t.Errorf("%q: %s", doc, message)
			failures++
		}
		if failures == 10 {
			t.Fatal("and perhaps more")
		}
	}
	if accepted < len(docs)/10 || accepted == len(docs) {
		t.Errorf("%d of %d documents were accepted: the documents no longer test anything", accepted,
			len(docs))
	}
}

type answer struct {
	OK    bool `json:"ok"`
	Value any  `json:"value"`
}

func askReference(t *testing.T, docs [][]byte) []answer {
	t.Helper()
	input, err := json.Marshal(docs)
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "node", "testdata/reference.js", reference.Bundle(t))
	cmd.Stdin, cmd.Stderr = bytes.NewReader(input), &stderr
	output, err := cmd.Output()
	if err != nil {
		t.Fatalf("the reference's parser: %v\n%s", err, stderr.String())
	}
	var answers []answer
	if err := json.Unmarshal(output, &answers); err != nil || len(answers) != len(docs) {
		t.Fatalf("%d answers for %d documents: %v", len(answers), len(docs), err)
	}
	return answers
}

func compare(doc []byte, want answer) string {
	got, err := jsonc.Parse(doc)
	switch {
	case (err == nil) != want.OK:
		return fmt.Sprintf("error %v, the reference's acceptance is %v", err, want.OK)
	case !want.OK:
		return ""
	case !reflect.DeepEqual(asJSON(got.Value), want.Value):
		return fmt.Sprintf("read as %v, the reference reads %v", got.Value, want.Value)
	}
	return ""
}

// asJSON gives the value the form in which the reference's comes over the pipe: JSON has no
// infinity, JavaScript writes null.
func asJSON(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key := range v {
			v[key] = asJSON(v[key])
		}
	case []any:
		for i := range v {
			v[i] = asJSON(v[i])
		}
	case float64:
		if v-v != 0 {
			return nil
		}
		return v + 0 // and no negative zero
	}
	return v
}

// mutants breaks the odd documents in random places, always in the same way.
func mutants(n int) [][]byte {
	random := rand.New(rand.NewPCG(1, 2))
	pieces := []string{
		"{", "}", "[", "]", ",", ":", `"`, `\`, "/", "//", "/*", "*/", "\n", "\r\n", "\t", " ", "-", "0", "1", ".", "e", "E+", "true", "false",
		"null", "x", `"k":`, `"k"`, `\u00e`, `\ud83d`, `\ude00`, "é", "😀", "\ufeff", "\u2028", "'", "0x1", `"__proto__":`, `{"a":1}`,
	}
	out := make([][]byte, 0, n)
	for len(out) < n {
		doc := []byte(oddDocuments[random.IntN(len(oddDocuments))].text)
		for range 1 + random.IntN(4) {
			at := random.IntN(len(doc) + 1)
			end := min(len(doc), at+random.IntN(3))
			piece := pieces[random.IntN(len(pieces))]
			doc = bytes.Join([][]byte{doc[:at], doc[end:]}, []byte(piece))
		}
		if utf8.Valid(doc) {
			out = append(out, doc)
		}
	}
	return out
}
