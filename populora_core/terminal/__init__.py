"""Parts that commands share, ours and those of plug-ins: options, the screen, the question before foreign code."""
