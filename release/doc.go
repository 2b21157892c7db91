// Command release builds what a release of Millrace has, without Docker:
//
//	millrace-<version>-linux-<arch>.tar.gz  static programs, systemd units, manual pages, completions
//	millrace-<version>-linux-<arch>.cdx.json the modules of each program (CycloneDX)
//	millrace-<version>-image.tar            a container image for all architectures (OCI layout)
//	install.sh                              installs an archive after it has checked its sum
//	SHA256SUMS                              the checksums of all of these
//
// The same commit gives the same archives: file times are the commit's, owners are root, and
// names are sorted. It is a module of its own, so that the product does not depend on it.
package main
