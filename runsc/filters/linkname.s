// So that the compiler takes functions without bodies: those that the test links to.
