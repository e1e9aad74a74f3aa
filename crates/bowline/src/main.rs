//! The `bowline` binary. Everything it does is in the library beside it, where tests and the reference generator can
//! reach it.

/// The API server makes and drops many small values on several threads, which the system allocator of glibc is slow
/// at: `cargo bench` shows half as many writes per second with it, and more memory (docs/adr/0004-allocator.md).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    bowline::main()
}
