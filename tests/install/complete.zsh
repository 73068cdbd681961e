# What zsh makes of a line and a tab, with the completions in a directory: complete.zsh DIRECTORY LINE
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PROMPT='> '; fpath=($1:q \$fpath); autoload -Uz compinit; compinit -u -D; echo ready"
while zpty -r shell line && [[ $line != ready* ]]; do :; done
zpty -w -n shell "$2"$'\t'
sleep 1
while zpty -r -t shell line; do print -r -- "$line"; done
zpty -d shell
