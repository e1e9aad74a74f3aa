//! The `bowline` binary. Its code is in the library crate, where tests and the reference generator can use it.

/// The API server allocates and frees many small values on several threads, for which glibc's allocator is slow: `cargo bench`
/// shows half as many writes per second with it, and more memory (docs/adr/0004-allocator.md).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    bowline::main()
}
