// The kernel of one context for Java: the child of child.py, which describes the
// frames. Arguments: the files from which it reads them and to which it writes them.
import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import jdk.jshell.*;

public class Kernel {
	static final class Failure extends Exception {
		final String name, trace;

		Failure(String name, String value, String trace) {
			super(value);
			this.name = name;
			this.trace = trace;
		}
	}

	// Default imports of code.
	static final String[] PACKAGES = {"java.io", "java.math", "java.net", "java.nio.file", "java.util", "java.util.concurrent", "java.util.function", "java.util.regex", "java.util.stream"};

	private final DataInputStream from;
	private final OutputStream to;
	private final JShell shell = JShell.builder().executionEngine("local").build();
	private volatile boolean stopped;
	private volatile int finished; // executions

	Kernel(DataInputStream from, OutputStream to) {
		this.from = from;
		this.to = to;
		for (String p : PACKAGES) {
			shell.eval("import " + p + ".*;");
		}
	}

	public static void main(String[] args) throws Exception {
		System.setIn(InputStream.nullInputStream());
		System.getenv().forEach((k, v) -> { // as at E2B, where code reads variables as properties
			if (!k.isEmpty()) System.getProperties().putIfAbsent(k, v);
		});
		Kernel kernel = new Kernel(new DataInputStream(new BufferedInputStream(new FileInputStream(args[0]))), new BufferedOutputStream(new FileOutputStream(args[1])));
		sun.misc.Signal.handle(new sun.misc.Signal("INT"), s -> new Thread(kernel::interrupt).start());
		kernel.serve();
	}

	/** Stops the execution. A shell that has not compiled the code yet ignores a stop, so it repeats. */
	private void interrupt() {
		for (int n = finished, tries = 0; finished == n && tries < 100; tries++) {
			stopped = true;
			shell.stop();
			try {
				Thread.sleep(50);
			} catch (InterruptedException e) {
				return;
			}
		}
	}

	void serve() throws IOException {
		emit("ready", "-", "");
		Map<String, String> was = new HashMap<>();
		for (String head; (head = line()) != null; ) {
			String[] words = head.split(" ");
			byte[] data = new byte[Integer.parseInt(words[2])];
			from.readFully(data);
			String text = new String(data, StandardCharsets.UTF_8);
			if (words[0].equals("env")) { // a process cannot change its variables: they are properties
				int cut = text.indexOf('=');
				was.put(text.substring(0, cut), System.setProperty(text.substring(0, cut), text.substring(cut + 1)));
				continue;
			}
			execute(text);
			was.forEach((k, v) -> {
				if (v == null) System.clearProperty(k);
				else System.setProperty(k, v);
			});
			was.clear();
		}
		System.exit(0);
	}

	private String line() throws IOException {
		ByteArrayOutputStream b = new ByteArrayOutputStream();
		for (int c; (c = from.read()) != '\n'; b.write(c)) {
			if (c < 0) return null;
		}
		return b.toString(StandardCharsets.UTF_8);
	}

	private void emit(String kind, String name, String text) throws IOException {
		System.out.flush();
		System.err.flush();
		byte[] data = text.getBytes(StandardCharsets.UTF_8);
		to.write((kind + " " + name + " " + data.length + "\n").getBytes(StandardCharsets.UTF_8));
		to.write(data);
		to.flush();
	}

	private void execute(String code) throws IOException {
		stopped = false;
		try {
			String value;
			try {
				value = run(code);
			} finally {
				finished++;
			}
			if (value != null) {
				emit("form", "text", value);
				emit("result", "main", "");
			}
			emit("done", "-", "");
		} catch (Failure e) {
			emit("form", "name", e.name);
			emit("form", "value", e.getMessage());
			emit("form", "traceback", e.trace);
			emit("error", "-", "");
		}
	}

	/** Runs code snippet by snippet and returns the value of the last one if it is an expression. */
	private String run(String code) throws Failure {
		String value = null;
		for (String rest = code; !rest.isBlank(); ) {
			SourceCodeAnalysis.CompletionInfo info = shell.sourceCodeAnalysis().analyzeCompletion(rest);
			if (info.completeness() == SourceCodeAnalysis.Completeness.EMPTY) break; // comments
			boolean whole = info.completeness().isComplete() && info.source() != null;
			List<SnippetEvent> events = shell.eval(whole ? info.source() : rest);
			rest = whole ? info.remaining() : "";
			value = null;
			for (SnippetEvent e : events) {
				if (stopped) throw new Failure("Interrupted", "the code was interrupted", "Interrupted: the code was interrupted");
				if (e.causeSnippet() == null) value = judge(e);
			}
		}
		return value;
	}

	private String judge(SnippetEvent e) throws Failure {
		Snippet snippet = e.snippet();
		switch (e.status()) {
			case REJECTED:
				throw rejected(snippet);
			case RECOVERABLE_DEFINED:
			case RECOVERABLE_NOT_DEFINED:
				System.err.println("This cannot be used until there is " + missing((DeclarationSnippet) snippet));
				return null;
			default:
		}
		if (e.exception() instanceof EvalException) {
			EvalException x = (EvalException) e.exception();
			throw new Failure(x.getExceptionClassName(), message(x), trace(x));
		}
		if (e.exception() instanceof UnresolvedReferenceException) {
			String what = "there is no " + missing(((UnresolvedReferenceException) e.exception()).getSnippet());
			throw new Failure("UnresolvedReference", what, "UnresolvedReference: " + what);
		}
		boolean expression = snippet.kind() == Snippet.Kind.EXPRESSION || snippet.subKind() == Snippet.SubKind.TEMP_VAR_EXPRESSION_SUBKIND;
		return expression ? e.value() : null;
	}

	private String missing(DeclarationSnippet snippet) {
		List<String> all = new ArrayList<>();
		shell.unresolvedDependencies(snippet).forEach(all::add);
		return String.join(", ", all);
	}

	private Failure rejected(Snippet snippet) {
		StringBuilder all = new StringBuilder("CompilationError:");
		String first = null, source = snippet.source();
		for (Diag d : (Iterable<Diag>) shell.diagnostics(snippet)::iterator) {
			if (!d.isError()) continue;
			String message = d.getMessage(null);
			if (first == null) first = message;
			int at = (int) Math.min(Math.max(d.getPosition(), 0), source.length());
			int begin = source.lastIndexOf('\n', at - 1) + 1, end = source.indexOf('\n', at);
			all.append("\n").append(message).append("\n  ").append(source, begin, end < 0 ? source.length() : end);
			all.append("\n  ").append(" ".repeat(at - begin)).append("^");
		}
		if (first == null) first = "this is not whole";
		return new Failure("CompilationError", first, all.toString());
	}

	/** Returns an exception's message with the names that the code uses. */
	private static String message(EvalException x) {
		return x.getMessage() == null ? "" : x.getMessage().replaceAll("REPL\\.\\$JShell\\$\\w+[.$]", "");
	}

	private static String trace(EvalException x) {
		StringBuilder all = new StringBuilder(x.getExceptionClassName() + ": " + message(x));
		for (StackTraceElement f : x.getStackTrace()) {
			all.append("\n\tat ").append(f.toString().replaceFirst("^\\.", ""));
		}
		if (x.getCause() instanceof EvalException) {
			all.append("\nCaused by: ").append(trace((EvalException) x.getCause()));
		}
		return all.toString();
	}
}
