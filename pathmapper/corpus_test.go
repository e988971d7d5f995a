package pathmapper_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/dray-dev/dray/pathmapper"
)

var update = flag.Bool("update", false, "write what is rewritten into testdata/text")

// The recorded output of real tools in a container (testdata/text/record.sh) is rewritten as
// expected (PM-10).
func TestRecordedOutput(t *testing.T) {
	names, err := filepath.Glob("testdata/text/*.txtar")
	if err != nil || len(names) < 20 {
		t.Fatal(names, err)
	}
	m := layout(t)
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			a, err := txtar.ParseFile(name)
			if err != nil {
				t.Fatal(err)
			}
			printed := a.Files[0].Data
			got, paths := m.RewriteText(pathmapper.ToHost, printed)
			if *update {
				a.Files = append(a.Files[:1], txtar.File{Name: "rewritten", Data: got})
				if err := os.WriteFile(name, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if want := a.Files[1].Data; !bytes.Equal(got, want) {
				t.Errorf("became\n%s\nand not\n%s", got, want)
			}
			if n := int64(bytes.Count(got, []byte("/home/me/app"))); n != paths {
				t.Errorf("%d paths were rewritten, and %d counted", n, paths)
			}
			back, _ := m.RewriteText(pathmapper.ToContainer, got)
			if !bytes.Equal(back, printed) {
				t.Errorf("on the way back it became\n%s", back)
			}
			if bytewise, _ := inPieces(t, m.Rewriter, pathmapper.ToHost,
				strings.Split(string(printed), "")); bytewise != string(got) {
				t.Errorf("byte by byte it became\n%s", bytewise)
			}
		})
	}
}
