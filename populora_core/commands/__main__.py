from populora_core.commands.app import main

main()
