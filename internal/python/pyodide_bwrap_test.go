package python

import (
	"slices"
	"testing"
)

// What the dynamic linker prints is read as ldd(1) shows it.
func TestLibrariesIn(t *testing.T) {
	const text = "\tlinux-vdso.so.1 (0x00007f2079bdf000)\n" +
		"\tlibdl.so.2 => /lib/x86_64-linux-gnu/libdl.so.2 (0x00007f2079bd2000)\n" +
		"\tlibm.so.6 => /opt/my libs/libm.so.6 (0x00007f2073ced000)\n" +
		"\t/lib64/ld-linux-x86-64.so.2 (0x00007f2079be1000)\n"
	want := []string{
		"/lib/x86_64-linux-gnu/libdl.so.2", "/opt/my libs/libm.so.6", "/lib64/ld-linux-x86-64.so.2",
	}
	if got, err := librariesIn(text); err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v", got, err)
	}
	for _, text := range []string{"", "deno 2.9.6\n", "\tlibx.so.1 => not found\n" + text} {
		if got, err := librariesIn(text); err == nil {
			t.Errorf("%q: got %q", text, got)
		}
	}
}
