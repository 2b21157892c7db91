# Makes the key pair of the session, and with the argument "serve" runs sshd on port 2200.
# Only root can log in the users that clients name: work, as Backend.AI's do, and user.
sshd=$(command -v sshd || command -v /usr/sbin/sshd) || exit 127
home=$(getent passwd user | cut -d: -f6)
home=${home:-$HOME}
dir=$home/.ssh
umask 077
mkdir -p "$dir"
(
	flock 9
	if ! [ -s "$home/id_container" ]; then
		rm -f "$dir/session" "$dir/session.pub"
		ssh-keygen -q -t ed25519 -N '' -C session -f "$dir/session" || exit 1
		cat "$dir/session.pub" >> "$dir/authorized_keys"
		mv "$dir/session" "$home/id_container"
	fi
	[ -s "$dir/host_key" ] || ssh-keygen -q -t ed25519 -N '' -f "$dir/host_key"
	if [ "$(id -u)" = 0 ]; then
		owner=$(stat -c %u:%g "$home")
		chown -R "$owner" "$dir" "$home/id_container"
		chown 0:0 "$dir/host_key"
		mkdir -p -m 0755 /run/sshd
		getent passwd work > /dev/null || echo "work:*:$owner::$home:$(command -v bash || echo /bin/sh)" >> /etc/passwd
		getent passwd sshd > /dev/null || echo "sshd:*:65533:65533::/run/sshd:/bin/false" >> /etc/passwd
	fi
) 9> "$dir/lock" || exit 1
[ "$1" = serve ] || exit 0
exec "$sshd" -D -e -f /dev/null -h "$dir/host_key" -o Port=2200 -o ListenAddress=127.0.0.1 -o PidFile=none \
	-o AuthorizedKeysFile="$dir/authorized_keys" -o StrictModes=no -o PasswordAuthentication=no \
	-o KbdInteractiveAuthentication=no -o UsePAM=no -o Subsystem='sftp internal-sftp'
