// Parses documents with the reference's own parser. argv: the bundle of @devcontainers/cli. stdin: a JSON array of documents in
// base64. stdout: a JSON array of {ok, value}, where ok says whether `devcontainer` would take the document.
//
// The bundle exports no parser, so the call is found by what stands around it: the parsed value is what the message about an object
// literal is about. If a new version moved that, this program fails, and so does the test.
const fs = require('fs');
const Module = require('module');

const bundle = process.argv[2];
const source = fs.readFileSync(bundle, 'utf8');
const call = /=([\w$]+)\(\w+\),\w+=\w+&&[\w$]+\(\w+\);if\(!\w+\|\|typeof \w+!="object"\|\|Array\.isArray\(\w+\)\)throw new [\w$]+\(\{description:`Dev container config \(\$\{[^`]*\) must contain a JSON object literal/.exec(source);
if (!call) {
	throw new Error('no parser found in ' + bundle);
}

const documents = JSON.parse(fs.readFileSync(0, 'utf8')).map((text) => Buffer.from(text, 'base64').toString());
const { exit, stdout } = process;
process.argv = [process.argv[0], bundle, '--version']; // the bundle runs its command line when it is loaded
process.exit = () => {};
console.log = () => {};
const module_ = new Module(bundle, null);
module_.paths = [];
module_._compile(`${source}\nmodule.exports.parse = ${call[1]};`, bundle);

const answers = documents.map((text) => {
	let value;
	try {
		value = module_.exports.parse(text);
	} catch (error) {
		return { ok: false, value: String(error) };
	}
	const ok = !!value && typeof value === 'object' && !Array.isArray(value);
	return ok ? { ok, value } : { ok };
});
stdout.write(JSON.stringify(answers), () => exit(0));
