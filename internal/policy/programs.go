package policy

import "strings"

func wordSet(words string) map[string]bool {
	set := map[string]bool{}
	for w := range strings.FieldsSeq(words) {
		set[w] = true
	}
	return set
}

var (
	systemDirs = wordSet(`/bin /usr/bin /sbin /usr/sbin /usr/local/bin /usr/local/sbin`)
	// shells are those whose text the parser reads.
	shells = wordSet(`sh bash dash ash`)
	// opaquePrograms run programs that their arguments, files or stdin name in a language that is not
	// the shell's, or elsewhere.
	opaquePrograms = wordSet(`eval source . alias unalias hash enable bind complete compgen fc mapfile
		readarray rbash zsh ksh mksh lksh yash posh fish csh tcsh elvish nu xonsh pwsh powershell
		python pypy ipython perl ruby irb php lua luajit node nodejs deno bun tclsh wish expect guile
		osascript awk gawk mawk nawk original-awk bc dc gdb lldb
		vi vim nvim view ex ed red emacs nano less more man info
		make gmake bmake ninja just rake ant gradle mvn npm npx pnpm yarn corepack
		ssh scp sftp rsync nc ncat netcat socat telnet rsh mosh
		docker podman nerdctl kubectl ctr crictl systemd-run systemctl machinectl at batch crontab
		su runuser script watch parallel entr flock fakeroot unshare nsenter chroot setarch linux
		strace ltrace perf valgrind dbus-run-session run-parts start-stop-daemon tmux screen
		capsh pkexec openvt rlwrap gcc g++ cc c++ tclsh jshell java sqlite psql mysql git-shell
		m4 xterm zip mail mutt jrunscript logrotate cpulimit sg newgrp bwrap firejail proot
		xdg-open open ip dmsetup apt apt-get dpkg rpm dnf yum snap pip gem cpan`)
)

// plainPrograms run no others, whatever their arguments are.
var plainPrograms = wordSet(`: [ true false echo printf test cd pwd exit return break continue shift
	export readonly local declare typeset unset read getopts umask ulimit wait times set let shopt
	pushd popd dirs jobs fg bg disown kill type which whereis help history caller suspend logout
	ls cat tac head tail wc cut paste tr uniq comm join nl od hd hexdump xxd base32 base64 cksum sum
	md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum grep egrep fgrep diff cmp stat file
	du df touch mkdir rmdir mktemp cp mv ln rm link unlink shred chmod chown chgrp readlink
	realpath basename dirname date cal sleep seq yes tee dd truncate csplit expand unexpand fold fmt
	pr rev shuf numfmt factor expr uname arch hostname whoami id groups who users tty nproc uptime
	free ps pgrep pidof pkill killall printenv locale getent sync mkfifo mknod tsort ptx pathchk
	gzip gunzip zcat bzip2 bunzip2 bzcat xz unxz xzcat zstd unzstd zstdcat lz4 unzip zipinfo jq tree
	ping iconv strings readelf gofmt stty tput clear lsof getconf lscpu lsblk dig
	nslookup column`)

// wrapper is a program that runs the command in its arguments: its options without and with a
// value, and the number of arguments before the command.
type wrapper struct {
	flags, values string
	skip          int
}

var wrappers = map[string]wrapper{
	"env":     {flags: "i0v", values: "uC"},
	"sudo":    {flags: "nHEkKbPS", values: "ugphCDrtT"},
	"doas":    {flags: "nL", values: "uC"},
	"nice":    {values: "n"},
	"ionice":  {flags: "t", values: "cn"},
	"nohup":   {},
	"setsid":  {flags: "cfw"},
	"stdbuf":  {values: "ioe"},
	"time":    {flags: "pvaqh", values: "fo"},
	"timeout": {flags: "vfp", values: "ks", skip: 1},
	"taskset": {flags: "ac", skip: 1},
	"chrt":    {flags: "frmva", skip: 1},
	"xargs":   {flags: "0rtpxo", values: "adEnPsL"},
	"command": {flags: "pvV"},
	"builtin": {},
	"exec":    {flags: "cl", values: "a"},
	"busybox": {},
	"toybox":  {},
	"coproc":  {},
}

// runningOptions are the first characters of arguments with which programs run others, or of sed
// scripts that could.
var runningOptions = map[string][]string{
	// of the subcommands in plainGit
	"git": {
		"--ext-diff", "--textconv", "--show-signature", "--edit-description", "--template", "--help",
	},
	"tar": {
		"--ch", "--to-c", "--use", "--rsh", "--rmt", "-I", "--inf", "--new-v", "-F", "-M", "--mul",
	},
	"sed":  {""},
	"sort": {"--compress"},
	"go": {
		"run", "generate", "env", "-exec", "--exec", "-toolexec", "--toolexec", "tool", "test", "vet",
		"fix", "bug", "-compiler", "--compiler", "-gccgoflags", "--gccgoflags", "-http", "--http",
	},
	"cargo": {""},
	"cmake": {""},
	"rg":    {"--pre", "--hostname-bin"},
	"fd":    {"-x", "-X", "--exec"},
	"curl":  {"-K", "--config", "--engine"},
	"wget":  {"--use-askpass", "-e", "--execute", "--config"},
	"split": {"--filter"},
	// these load libraries, and install runs the program that strips
	"install": {"--strip-program"},
	"nm":      {"--plugin"},
	"objdump": {"--plugin"},
	"size":    {"--plugin"},
}

var dangerousVariables = wordSet(`PATH BASH_ENV ENV IFS SHELL SHELLOPTS BASHOPTS PS0 PS1 PS4
	PROMPT_COMMAND EDITOR VISUAL PAGER MANPAGER BROWSER LESSOPEN LESSCLOSE LESS GCONV_PATH LOCPATH
	SSH_ASKPASS SUDO_ASKPASS SUDO_EDITOR MAKEFLAGS MAKEFILES GOFLAGS GOROOT CC CXX LD AR
	NODE_OPTIONS NODE_PATH RUBYOPT RUBYLIB JAVA_TOOL_OPTIONS JDK_JAVA_OPTIONS _JAVA_OPTIONS CLASSPATH
	MAVEN_OPTS AWKPATH TAR_OPTIONS RSYNC_RSH CVS_RSH TERMINFO TERMCAP HOME XDG_CONFIG_HOME ZDOTDIR
	FPATH CDPATH GLOBIGNORE EXECIGNORE HISTFILE INPUTRC POSIXLY_CORRECT RUSTC_WRAPPER RUSTFLAGS
	VIMINIT EXINIT LUA_INIT LUA_PATH LUA_CPATH PHPRC PHP_INI_SCAN_DIR TMPDIR
	BASH_LOADABLES_PATH TEXTDOMAIN TEXTDOMAINDIR NLSPATH GETCONF_DIR TAPE WGETRC SYSTEM_WGETRC
	CURL_HOME RIPGREP_CONFIG_PATH GOENV GOTOOLCHAIN GOTOOLDIR GOCACHEPROG GOAUTH GOVCS GCCGO FC
	PKG_CONFIG PKG_CONFIG_PATH MAKE RUSTC RUSTDOC RUSTUP_TOOLCHAIN GEM_HOME GEM_PATH BUNDLE_GEMFILE
	GRADLE_OPTS JAVA_OPTS ANT_OPTS JAVA_HOME LESSKEY LESSKEYIN LESSKEY_SYSTEM`)

// isDangerous reports whether a variable can change which programs run, or what they load.
func isDangerous(name string) bool {
	if name == "CGO_ENABLED" {
		return false
	}
	for _, prefix := range []string{
		"LD_", "DYLD_", "GIT_", "PYTHON", "PERL", "BASH_FUNC_", "npm_config_", "NPM_CONFIG_", "CARGO_",
		"MALLOC_", "GLIBC_", "DOTNET_", "COMPlus_", "OPENSSL_", "CGO_",
	} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return dangerousVariables[name]
}
