// Runs commands of the reference CLI one after the other in one process: starting node for each takes far longer than the
// command. argv: the bundle of @devcontainers/cli. stdin: a JSON array of argument lists. stdout: a JSON array of {code, stdout}.
const fs = require('fs');
const Module = require('module');

const bundle = process.argv[2];
const source = fs.readFileSync(bundle, 'utf8');
const commands = JSON.parse(fs.readFileSync(0, 'utf8'));
const { exit } = process;
const write = process.stdout.write.bind(process.stdout);

async function run(args) {
	let stdout = '';
	process.argv = [process.argv[0], bundle, ...args];
	process.stdout.write = (chunk, done) => {
		stdout += chunk;
		if (done) {
			done();
		}
		return true;
	};
	const code = await new Promise((resolve) => {
		process.exit = resolve;
		const module_ = new Module(bundle, null);
		module_.filename = bundle;
		module_.paths = [];
		module_._compile(source, bundle);
	});
	return { code, stdout };
}

(async () => {
	const answers = [];
	for (const args of commands) {
		answers.push(await run(args));
	}
	write(JSON.stringify(answers), () => exit(0));
})();
