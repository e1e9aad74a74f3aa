//! The `bowline` binary. Everything it does is in the library beside it, where tests and the reference generator can
//! reach it.

fn main() -> std::process::ExitCode {
    bowline::main()
}
