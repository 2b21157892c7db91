# The kernel of one context for R: the child of child.py, which describes the frames.
# Arguments: the files from which it reads them and to which it writes them.
suspendInterrupts(local({
  ends <- commandArgs(TRUE)
  from <- fifo(ends[1], "rb", blocking = TRUE)
  to <- fifo(ends[2], "wb", blocking = TRUE)
  kernel <- Sys.getpid()
  pictures <- tempfile("pictures")
  dir.create(pictures)
  device <- NULL # on which code draws unless it opens another

  options(warn = 1, device = function(...) {
    grDevices::png(file.path(pictures, "%06d.png"), width = 7, height = 7, units = "in", res = 120, type = "cairo")
    device <<- grDevices::dev.cur()
  })

  exactly <- function(n) {
    got <- raw(0)
    while (length(got) < n) {
      part <- readBin(from, "raw", n - length(got))
      if (!length(part)) quit("no")
      got <- c(got, part)
    }
    got
  }
  frame <- function() {
    head <- raw(0)
    while (length(b <- exactly(1)) && b != 0x0a) head <- c(head, b)
    words <- strsplit(rawToChar(head), " ")[[1]]
    text <- rawToChar(exactly(as.integer(words[3])))
    Encoding(text) <- "UTF-8"
    list(kind = words[1], text = text)
  }
  forked <- function() Sys.getpid() != kernel
  emit <- function(kind, name = "-", data = raw(0)) {
    if (forked()) return()
    if (is.character(data)) data <- charToRaw(enc2utf8(paste(data, collapse = "\n")))
    writeBin(c(charToRaw(sprintf("%s %s %d\n", kind, name, length(data))), data), to)
  }

  escaped <- function(x) {
    for (pair in list(c("&", "&amp;"), c("<", "&lt;"), c(">", "&gt;"))) x <- gsub(pair[1], pair[2], x, fixed = TRUE)
    x
  }
  row <- function(cells, tag) paste0("<tr>", paste0("<", tag, ">", escaped(cells), "</", tag, ">", collapse = ""), "</tr>")
  table <- function(d) {
    cells <- vapply(d, function(column) format(column), character(nrow(d)))
    dim(cells) <- dim(d)
    rows <- vapply(seq_len(nrow(d)), function(i) row(c(rownames(d)[i], cells[i, ]), "td"), "")
    paste0("<table>\n", paste(c(row(c("", names(d)), "th"), rows), collapse = "\n"), "\n</table>")
  }
  # A plot has no text form in addition.
  show <- function(value, name) {
    text <- utils::capture.output(print(value))
    if (!length(text)) return()
    emit("form", "text", text)
    if (is.data.frame(value)) tryCatch(emit("form", "html", table(value)), error = function(e) NULL)
    emit("result", name)
  }
  drawn <- function() {
    if (!is.null(device) && device %in% grDevices::dev.list()) grDevices::dev.off(device)
    device <<- NULL
    for (file in sort(list.files(pictures, full.names = TRUE))) {
      emit("form", "png", readBin(file, "raw", file.size(file)))
      emit("result", "shown")
      unlink(file)
    }
  }
  ours <- "^(eval\\(exprs\\[\\[i\\]\\], globalenv\\(\\)\\)|parse\\(text = code, )" # calls by run, not by the code
  fail <- function(e, calls) {
    value <- if (inherits(e, "interrupt")) "the code was interrupted" else conditionMessage(e)
    at <- if (!is.null(conditionCall(e))) deparse(conditionCall(e), nlines = 1)[1]
    head <- paste0("Error", if (!is.null(at) && !grepl(ours, at)) paste0(" in ", at), ": ", value)
    emit("form", "name", class(e)[1])
    emit("form", "value", value)
    emit("form", "traceback", c(head, if (length(calls)) c("Traceback:", sprintf("%d. %s", seq_along(calls), calls))))
    emit("error")
  }

  ask <- function(prompt = "") {
    cat(prompt)
    flush(stdout())
    answer <- suspendInterrupts({ # each request has one answer, which is read as a whole
      emit("input")
      frame()
    })
    if (answer$kind == "interrupt") stop(structure(class = c("interrupt", "condition"), list(message = "", call = NULL)))
    answer$text
  }
  attach(list(display = function(...) for (value in list(...)) show(value, "shown"), readline = ask), name = "millrace", warn.conflicts = FALSE)

  run <- function(code) {
    exprs <- parse(text = code, keep.source = TRUE)
    for (i in seq_along(exprs)) {
      got <- withVisible(allowInterrupts(eval(exprs[[i]], globalenv())))
      if (got$visible) show(got$value, if (i == length(exprs)) "main" else "shown")
    }
  }
  # Ends a process that code forked: it must not act as a kernel.
  leave <- function(failed) {
    if (!is.null(failed)) message("Error: ", conditionMessage(failed))
    parallel:::mcexit(if (is.null(failed)) 0L else 1L)
  }
  execute <- function(code) {
    calls <- character(0)
    failed <- tryCatch(
      withCallingHandlers({ run(code); NULL }, error = function(e) {
        all <- vapply(sys.calls(), function(call) deparse(call, nlines = 1)[1], "")
        calls <<- all[seq_along(all) > max(grep(ours, all)) & !grepl("^(\\.handleSimpleError|h\\(simpleError|\\(function \\(e\\))", all)]
      }),
      error = identity, interrupt = identity)
    if (forked()) leave(failed)
    drawn()
    if (is.null(failed)) emit("done") else fail(failed, calls)
  }

  emit("ready")
  was <- list()
  repeat {
    request <- frame()
    if (request$kind == "code") {
      execute(request$text)
      for (name in names(was)) if (is.na(was[[name]])) Sys.unsetenv(name) else do.call(Sys.setenv, was[name])
      was <- list()
    } else {
      name <- sub("=.*", "", request$text)
      was[[name]] <- Sys.getenv(name, NA)
      do.call(Sys.setenv, stats::setNames(list(substring(request$text, nchar(name) + 2)), name))
    }
  }
}))
