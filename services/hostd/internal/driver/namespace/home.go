//go:build linux

package namespace

import "github.com/millrace/millrace/services/hostd/internal/driver/namespace/nsinit"

const userID = 1000

// homeFiles returns the initial files of the homes of the user and of root, and of
// /etc/skel.
func homeFiles() []nsinit.File {
	var all []nsinit.File
	for _, home := range []struct {
		dir   string
		owner uint32
	}{{"home/user", userID}, {"root", 0}, {"etc/skel", 0}} {
		for _, f := range []nsinit.Text{{Name: ".bashrc", Body: bashrc}, {Name: ".profile", Body: dotProfile}, {Name: ".bash_logout", Body: bashLogout}} {
			all = append(all, nsinit.File{Name: home.dir + "/" + f.Name, Body: f.Body, Owner: home.owner})
		}
	}
	return all
}

// What all login shells read adds to the time of each command: none of it starts a
// program.
const (
	dotProfile = `# For login shells.
[ -z "$BASH_VERSION" ] || [ ! -f "$HOME/.bashrc" ] || . "$HOME/.bashrc"
[ ! -d "$HOME/bin" ] || PATH="$HOME/bin:$PATH"
[ ! -d "$HOME/.local/bin" ] || PATH="$HOME/.local/bin:$PATH"
`
	bashrc = `# For interactive shells.
[[ $- == *i* ]] || return

HISTCONTROL=ignoreboth HISTSIZE=1000 HISTFILESIZE=2000
shopt -s histappend checkwinsize

case $TERM in
*color*) PS1='\[\e[01;32m\]\u@\h\[\e[00m\]:\[\e[01;34m\]\w\[\e[00m\]\$ ' ;;
*) PS1='\u@\h:\w\$ ' ;;
esac
[[ $TERM != xterm* ]] || PS1='\[\e]0;\u@\h: \w\a\]'$PS1

if [ -x /usr/bin/dircolors ]; then
    eval "$(dircolors -b)"
    alias ls='ls --color=auto' grep='grep --color=auto' egrep='egrep --color=auto' fgrep='fgrep --color=auto'
fi
alias ll='ls -alF' la='ls -A' l='ls -CF'

[ ! -f ~/.bash_aliases ] || . ~/.bash_aliases
shopt -oq posix || [ ! -f /usr/share/bash-completion/bash_completion ] || . /usr/share/bash-completion/bash_completion
`
	bashLogout = `# When a login shell ends, a console shows nothing of it.
[ "$SHLVL" != 1 ] || [ ! -x /usr/bin/clear_console ] || /usr/bin/clear_console -q
`
)
